#include "cli/signals.h"

#include <signal.h>

namespace apus::cli {
namespace {

SignalFlags flags;

void note_signal(int number) {
  int none = 0;
  if (flags.signal.compare_exchange_strong(none, number)) {
    flags.stop.store(true);
    return;
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

const SignalFlags& watch_signals() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return flags;
}

}  // namespace apus::cli
