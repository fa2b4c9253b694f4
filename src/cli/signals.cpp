#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <string_view>

namespace apus::cli {
namespace {

SignalFlags flags;
std::atomic<bool> line_is_open = false;

void note_signal(int number) {
  int none = 0;
  if (flags.signal.compare_exchange_strong(none, number)) {
    flags.stop.store(true);
    return;
  }
  constexpr std::string_view kClear = "\r\x1b[K";
  if (line_is_open.load() && ::write(STDOUT_FILENO, kClear.data(), kClear.size()) < 0)
    line_is_open.store(false);
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

void note_open_line(bool is_open) {
  line_is_open.store(is_open);
}

const SignalFlags& watch_signals() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A terminal that closes; under nohup it is ignored, and stays so.
  struct sigaction before = {};
  ::sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
  return flags;
}

}  // namespace apus::cli
