#include "launch/child_group.h"

#include <signal.h>

#include <algorithm>

#include "apus/base/error.h"

namespace apus::launch {

ChildGroup::ChildGroup(int first_rank, Clock& clock, Logger& logger)
    : first_rank_(first_rank), clock_(clock), logger_(logger) {}

void ChildGroup::start(const ChildCommand& command) {
  children_.emplace_back(command);
}

std::vector<RankExit> ChildGroup::watch(const WatchOptions& options) {
  while (true) {
    const bool failed = poll_all();
    if (!any_running()) return exits_;
    pass_on(options);
    if (failed) stop_others(options);
    clock_.sleep_for(options.poll);
  }
}

/// Notes ends that are new; whether any rank has failed by now.
bool ChildGroup::poll_all() {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (!children_[i].running()) continue;
    if (const auto& end = children_[i].poll()) {
      const bool was_stopped = told_to_end_ || passed_on_ != 0;
      exits_.push_back({.rank = first_rank_ + static_cast<int>(i), .exit = *end, .was_stopped = was_stopped});
    }
  }
  return std::ranges::any_of(exits_, [](const RankExit& end) { return end.exit.failed(); });
}

bool ChildGroup::any_running() const {
  return std::ranges::any_of(children_, [](const ChildProcess& child) { return child.running(); });
}

void ChildGroup::send_all(int signal) {
  for (const ChildProcess& child : children_) {
    if (child.running()) child.send(signal);
  }
}

void ChildGroup::pass_on(const WatchOptions& options) {
  const int signal = options.signal != nullptr ? options.signal->load() : 0;
  if (signal == 0 || passed_on_ != 0) return;
  passed_on_ = signal;
  logger_.info(detail::concat("Passing ", signal_name(signal), " on to all ranks"));
  send_all(signal);
}

void ChildGroup::stop_others(const WatchOptions& options) {
  if (!told_to_end_) {
    told_to_end_ = true;
    deadline_ = clock_.steady_now() + options.grace;
    // After a passed-on signal they are ending already, and a second one would cut their last save short.
    if (passed_on_ == 0) send_all(SIGTERM);
    return;
  }
  if (killed_ || clock_.steady_now() < deadline_) return;
  killed_ = true;
  logger_.warning(detail::concat("Killing the ranks that still run ", options.grace.count() / 1000.0,
                                 " s after a rank had ended"));
  send_all(SIGKILL);
}

}  // namespace apus::launch
