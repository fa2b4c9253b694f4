#pragma once

#include <csignal>

namespace apus::comm {

/// Keeps SIGPIPE from this thread, and from every thread that is started while it lives: they inherit the mask.
///
/// Gloo writes to its peers without MSG_NOSIGNAL, so one that has died would take this process with it, silently,
/// before the error is reported. A library must not change the process's handlers; its own threads' masks it may.
class SigpipeShield final {
 public:
  SigpipeShield();
  /// A SIGPIPE that came meanwhile is dropped; one that was pending before stays.
  ~SigpipeShield();
  SigpipeShield(const SigpipeShield&) = delete;
  SigpipeShield& operator=(const SigpipeShield&) = delete;

 private:
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace apus::comm
