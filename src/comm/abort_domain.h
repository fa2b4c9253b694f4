#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "apus/base/log.h"
#include "apus/comm/store.h"
#include "apus/comm/work.h"

namespace apus::comm {

/// What this rank knows about one of its groups, for reports.
class GroupState {
 public:
  /// `key` is the group's own prefix in the job's store; `members` are job ranks in group order.
  GroupState(std::string name, std::string key, int rank, std::vector<int> members);

  const std::string& name() const { return name_; }
  const std::string& key() const { return key_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }
  /// The operation that was started last.
  void started(const OpInfo& info);
  /// "118 all_gather #118 float[4]", "0" before the first.
  std::string progress() const;

 private:
  std::string name_;
  std::string key_;
  int rank_;
  std::vector<int> members_;
  mutable std::mutex mutex_;
  int64_t sequence_ = 0;
  std::string last_;
};

/// The fate that a rank's groups share: a flag, and the abort key in the store that carries the first cause
/// to all ranks. The cause of an abort is claimed through a counter, so that all ranks report the same one.
///
/// A deadline goes in two steps, without any thread of its own: the rank that notices it writes the cause;
/// ranks that wait in an operation see it at their next poll, write how far each of their groups is, and wait
/// for the report; whoever does not answer within a moment is named.
class AbortDomain {
 public:
  AbortDomain(std::shared_ptr<Store> store, int rank, std::shared_ptr<Logger> logger);

  /// Ends the job with this rank's reason, unless it has ended already.
  void abort(const std::string& reason) noexcept;
  /// Whether the job has ended, as far as this rank knows; never looks at the store.
  bool ended() const { return ended_; }
  /// Looks at the store, at most once in 50 ms. Whether the job has ended.
  bool poll();
  /// Waits up to `patience` for another rank's cause. Whether the job has ended.
  bool poll_for(std::chrono::milliseconds patience);
  /// The job's end as an exception at this place; the job must have ended.
  [[noreturn]] void raise(const GroupState& group, const OpInfo& info) const;
  /// Ends the job because `info` is past its deadline, with the report of who did not arrive.
  void deadline(const GroupState& group, const OpInfo& info, std::chrono::milliseconds waited);

  void add_group(const std::shared_ptr<GroupState>& group);
  void set_note(const std::string& note);
  std::string note() const;
  int rank() const { return rank_; }
  const std::shared_ptr<Store>& store() const { return store_; }
  const std::shared_ptr<Logger>& logger() const { return logger_; }

 private:
  bool look();
  void end(int rank, const std::string& reason);
  void answer();
  std::string report(const GroupState& group, const OpInfo& info, std::chrono::milliseconds waited);

  std::shared_ptr<Store> store_;
  int rank_;
  std::shared_ptr<Logger> logger_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> store_gone_{false};
  std::atomic<int64_t> next_look_ns_{0};
  mutable std::mutex mutex_;
  int cause_rank_ = -1;
  std::string cause_;
  std::string note_;
  std::vector<std::weak_ptr<GroupState>> groups_;
};

}  // namespace apus::comm
