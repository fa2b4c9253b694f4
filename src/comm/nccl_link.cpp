#include "comm/nccl_link.h"

#include "comm/backoff.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

/// Calls do not block, so that a thread that stays in one this long is lost: it is aborted over its head.
constexpr milliseconds kCallPatience{2000};

}  // namespace

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
  if (owner_ == LinkOwner::kCaller || comm_ == nullptr) {
    marked_ = true;
    gone_ = true;
    return true;
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

std::vector<NcclResult> NcclLink::abort_links(const std::vector<std::shared_ptr<NcclLink>>& links) {
  for (const auto& link : links) link->mark();
  std::vector<std::unique_lock<std::timed_mutex>> locks;
  for (const auto& link : links) locks.emplace_back(link->mutex_, kCallPatience);
  std::vector<NcclResult> results;
  if (links.empty()) return results;
  const NcclApi& nccl = links.front()->backend_->nccl;
  nccl.group_start();
  for (const auto& link : links) {
    const NcclComm comm = std::exchange(link->comm_, nullptr);
    results.push_back(comm == nullptr ? NcclResult::kSuccess : nccl.abort(comm));
  }
  const NcclResult end = nccl.group_end();
  for (size_t i = 0; i < links.size(); ++i) {
    if (results[i] == NcclResult::kSuccess) results[i] = end;
    links[i]->gone_ = true;
  }
  return results;
}

}  // namespace apus::comm
