#include "comm/sigpipe_shield.h"

#include <ctime>

namespace apus::comm {
namespace {

sigset_t only_sigpipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

SigpipeShield::SigpipeShield() : was_pending_(is_pending()) {
  const sigset_t set = only_sigpipe();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

SigpipeShield::~SigpipeShield() {
  if (!was_pending_ && is_pending()) {
    const sigset_t set = only_sigpipe();
    const timespec at_once{};
    sigtimedwait(&set, nullptr, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace apus::comm
