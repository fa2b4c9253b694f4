#include "comm/nccl_link.h"

#include <utility>

#include "comm/backoff.h"

namespace apus::comm {

using std::chrono::milliseconds;

NcclResult NcclLink::connect(int size, const NcclUniqueId& id, int rank) {
  const std::lock_guard lock(mutex_);
  if (marked_) return NcclResult::kInvalidUsage;
  return backend_->nccl.init_rank(comm_, size, id, rank);
}

void NcclLink::adopt(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  comm_ = comm;
  owner_ = LinkOwner::kCaller;
}

NcclResult NcclLink::call(const std::function<NcclResult(NcclComm)>& call) {
  const std::lock_guard lock(mutex_);
  if (marked_ || comm_ == nullptr) return NcclResult::kInvalidUsage;
  return call(comm_);
}

NcclResult NcclLink::state() {
  const std::lock_guard lock(mutex_);
  if (marked_) return NcclResult::kInvalidUsage;
  if (comm_ == nullptr) return NcclResult::kSuccess;
  NcclResult state = NcclResult::kSuccess;
  const NcclResult answer = backend_->nccl.get_async_error(comm_, state);
  return answer == NcclResult::kSuccess ? state : answer;
}

std::string NcclLink::error_text(NcclResult result) {
  const std::lock_guard lock(mutex_);
  return backend_->nccl.error_text(marked_ ? nullptr : comm_, result);
}

bool NcclLink::close(milliseconds patience, const std::function<bool()>& give_up) {
  {
    const std::lock_guard lock(mutex_);
    if (owner_ == LinkOwner::kCaller || comm_ == nullptr) {
      marked_ = true;
      gone_ = true;
      return true;
    }
  }
  const Backoff backoff(patience);
  // A communicator that has failed, or is still busy when the time is up, cannot be finalized.
  NcclResult now = state();
  while (now == NcclResult::kInProgress && !give_up() && backoff.pause()) now = state();
  if (now == NcclResult::kSuccess) now = call(backend_->nccl.finalize);
  while (now == NcclResult::kInProgress && !give_up() && backoff.pause()) now = state();
  if (now != NcclResult::kSuccess) return false;
  const std::lock_guard lock(mutex_);
  if (marked_) return gone_;
  marked_ = true;
  if (backend_->nccl.destroy(comm_) == NcclResult::kSuccess) gone_ = true;
  comm_ = nullptr;
  return gone_;
}

std::vector<NcclResult> NcclLink::abort_links(const std::vector<std::shared_ptr<NcclLink>>& links,
                                              milliseconds call_patience) {
  for (const auto& link : links) link->mark();
  std::vector<std::unique_lock<std::mutex>> locks;
  std::vector<NcclComm> comms;
  for (const auto& link : links) {
    std::unique_lock<std::mutex>& lock = locks.emplace_back(link->mutex_, std::try_to_lock);
    const Backoff backoff(call_patience);
    while (!lock.owns_lock() && backoff.pause()) lock.try_lock();
    if (const NcclComm comm = std::exchange(link->comm_, nullptr)) comms.push_back(comm);
  }
  std::vector<NcclResult> results;
  if (!comms.empty()) {
    const NcclApi& nccl = links.front()->backend_->nccl;
    results.push_back(nccl.group_start());
    for (const NcclComm comm : comms) results.push_back(nccl.abort(comm));
    results.push_back(nccl.group_end());
  }
  for (const auto& link : links) link->gone_ = true;
  return results;
}

}  // namespace apus::comm
