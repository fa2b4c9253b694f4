#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/log.h"
#include "launch/child_process.h"
#include "launch/first_cause.h"

namespace apus::launch {

/// How to watch a group.
struct WatchOptions {
  std::chrono::milliseconds grace = std::chrono::seconds(5);  ///< between SIGTERM and SIGKILL after a failure
  std::chrono::milliseconds poll = std::chrono::milliseconds(20);
  const std::atomic<int>* signal = nullptr;  ///< to pass on; may be null
};

/// The processes of one attempt. Local rank i is the i-th one that was started.
class ChildGroup final {
 public:
  ChildGroup(int first_rank, Clock& clock, Logger& logger);

  void start(const ChildCommand& command);
  /// Returns when all have ended: their ends in the order in which they were seen. The first failure ends the
  /// others. A signal of the host is passed on once; ranks may then take as long as they need to end well.
  std::vector<RankExit> watch(const WatchOptions& options);

 private:
  bool poll_all();
  bool any_running() const;
  void send_all(int signal);
  void pass_on(const WatchOptions& options);
  void stop_others(const WatchOptions& options);

  int first_rank_;
  Clock& clock_;
  Logger& logger_;
  std::vector<ChildProcess> children_;
  std::vector<RankExit> exits_;
  int passed_on_ = 0;         ///< the host's signal that all ranks have had
  bool told_to_end_ = false;  ///< SIGTERM because of a failure
  bool killed_ = false;
  Clock::Duration deadline_{0};
};

}  // namespace apus::launch
