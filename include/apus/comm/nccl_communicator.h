#pragma once

#include <chrono>
#include <memory>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"

namespace apus::comm {

/// How a group of one rank moves data on the device.
enum class GroupOfOne {
  /// Copies on the current stream: NCCL is neither started nor given memory for axes of degree 1.
  kCopies,
  /// Through NCCL, as larger groups do.
  kNccl,
};

/// Options of NcclCommunicator::create.
struct APUS_API NcclOptions {
  int device = 0;                                 ///< this rank's GPU among those that this process sees
  GroupOfOne group_of_one = GroupOfOne::kCopies;  ///< performance only
  /// For finalizing when the communicator is destroyed, and for each abort.
  std::chrono::milliseconds shutdown_timeout = std::chrono::seconds(10);
  /// Between two looks of the watch at events, NCCL and the store; at least 1 ms for each rank of the job, so
  /// that a thousand ranks do not drown the store.
  std::chrono::milliseconds watch_every = std::chrono::milliseconds(100);
  /// A caller's cudaStream_t to run on, which outlives the communicator; null: one of its own, of high
  /// priority. Groups made from this one have their own.
  void* stream = nullptr;
  /// A caller's ncclComm_t of the same ranks in the same order, ready and not in use elsewhere meanwhile;
  /// null: one of its own. It is given back when the communicator is destroyed, except after an abort of the
  /// job: that ends it by ncclCommAbort, and the handle is invalid.
  void* communicator = nullptr;
};

/// Collectives between GPUs over NCCL, which is called directly.
///
/// Tensors:     those on the device go through NCCL, those on the CPU through `host`: one handle for both.
/// The
///              device of a call is the same on all ranks. Zero elements send nothing.
/// Stream:      each communicator has a stream of its own. An operation starts behind what the current stream
///              holds, and Work::wait() puts the current stream's next kernel behind its end; the host blocks
///              only in barrier(). Two communicators over the same ranks overlap one another.
/// Memory:      tensors are kept until Work::wait() has been called on the stream that was current at the
///              start, or the end has been seen; nothing is recorded with the allocator. Tensors are to be
///              allocated on that stream, or kept by the caller. No copies.
/// Maths:       a scale is applied to the result, in its dtype, by one more pass on the communicator's
///              stream: scaling ahead of the sum would round it to bfloat16 first.
/// Determinism: the order of additions is NCCL's, in the tensor's dtype: the same from run to run for the
///              same ranks, sizes and topology. Sums in rank order are Gloo's alone.
/// Point-to-point: tags order the transfers of one send_recv call; both ends name the same transfers in their
///              calls.
/// Failure:     communicators are non-blocking. One thread a job looks after all of them: an error that NCCL
///              reports, or an operation past host's timeout, ends the job with one report (rank, group,
///              operation, sequence, shape, note, who did not arrive); all communicators are then marked and
///              aborted from that thread. What waits on the stream goes on with worthless data, and the next
///              call throws.
///              The destructor finalizes within the shutdown timeout, or aborts this communicator.
class APUS_API NcclCommunicator {
 public:
  /// Connects to all peers and exchanges one element, so that the first step does not pay for it.
  /// Collectives: every rank of `host`, a group from GlooCommunicator::create, calls it. Rank, size, name,
  ///              timeout, store, logger and the job's fate are host's. A second communicator over the same
  ///              host is another group of the same ranks.
  /// Throws:      ConfigError if host is no Gloo group or a caller's communicator has another rank or size;
  ///              CommError if the ranks do not connect in host's timeout; NotSupported in a build without
  ///              CUDA.
  static std::unique_ptr<Communicator> create(std::shared_ptr<Communicator> host, const NcclOptions& options);
};

}  // namespace apus::comm
