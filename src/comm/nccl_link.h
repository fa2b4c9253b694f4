#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nccl_api.h"

namespace apus::comm {

/// Whose an NCCL communicator is.
enum class LinkOwner {
  kUs,      ///< finalized and destroyed by close()
  kCaller,  ///< left as it is, unless the job is aborted
};

/// One NCCL communicator, and the only way to it: calls are made one at a time (NCCL's own bookkeeping of
/// calls in progress is not safe from two threads), and none once the link is marked.
///
/// States:      empty -> (init_rank or adopt) -> open -> marked -> aborted, or open -> closed.
class NcclLink {
 public:
  explicit NcclLink(std::shared_ptr<const NcclBackend> backend) : backend_(std::move(backend)) {}
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  /// Starts to connect. What call() gives.
  NcclResult connect(int size, const NcclUniqueId& id, int rank);
  /// Takes a caller's communicator, which is ready.
  void adopt(NcclComm comm);
  /// Makes a call with the communicator, kInvalidUsage and no call if the link is marked or empty.
  NcclResult call(const std::function<NcclResult(NcclComm)>& call);
  /// How the calls so far are going: kInProgress, kSuccess, or what went wrong. kSuccess while it is empty.
  NcclResult state();
  /// A result in words, with NCCL's last message.
  std::string error_text(NcclResult result);

  /// No call begins from now on. Abort and close are all that is left.
  void mark() { marked_ = true; }
  bool marked() const { return marked_; }
  /// Whether nothing of the communicator runs any more.
  bool gone() const { return gone_; }
  /// Ends the communicator in good order within `patience`: flushes what was issued on all ranks, then frees
  /// it. Whether it is gone; if not, abort_links remains.
  bool close(std::chrono::milliseconds patience, const std::function<bool()>& give_up);

  /// Marks all links, then aborts each, from this one thread and in one NCCL group: so the flags that end
  /// kernels are set for all before NCCL waits for one of them, whose memory cannot be freed while another's
  /// kernel occupies the device. What NCCL answered to each call.
  /// Calls do not block, so that a thread that stays in one longer than `call_patience` is lost: its
  /// communicator is aborted over its head.
  static std::vector<NcclResult> abort_links(
      const std::vector<std::shared_ptr<NcclLink>>& links,
      std::chrono::milliseconds call_patience = std::chrono::milliseconds(2000));

 private:
  std::shared_ptr<const NcclBackend> backend_;
  std::mutex mutex_;
  NcclComm comm_ = nullptr;
  LinkOwner owner_ = LinkOwner::kUs;
  std::atomic<bool> marked_{false};
  std::atomic<bool> gone_{false};
};

}  // namespace apus::comm
