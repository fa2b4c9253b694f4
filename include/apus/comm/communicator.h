#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/store.h"
#include "apus/comm/work.h"

namespace apus::comm {

/// How values of several ranks become one.
enum class ReduceOp { kSum, kMax, kMin };

/// Options of all_reduce and reduce_scatter.
struct APUS_API ReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  double scale = 1.0;  ///< multiplies the reduced values, after the sum; floating dtypes only
};

/// Direction of one point-to-point transfer.
enum class P2pKind { kSend, kRecv };

/// One transfer of a send_recv batch.
struct APUS_API P2pOp {
  P2pKind kind = P2pKind::kSend;
  int peer = 0;       ///< rank in the group
  at::Tensor tensor;  ///< contiguous; written by a receive
  int tag = 0;        ///< pairs sends with receives between the same two ranks; 0 to 1023
};

/// This rank's handle to one ordered group of ranks.
///
/// Order:       all ranks of a group call the same operations in the same order, with tensors of the same
///              dtype and of the shapes stated below. The order never depends on data.
/// Tensors:     defined, contiguous (anything else is a ShapeError: nothing is copied behind the caller's
///              back), outputs do not overlap inputs. Reductions take float, bfloat16, half, double, int64
///              and uint8; moves take every dtype.
/// Threads:     one thread at a time; abort() from any thread.
/// Stream:      GPU: the current stream. CPU: work runs in the background until Work::wait().
/// Determinism: reduce_scatter adds in rank order 0..n-1 (bfloat16 and half in fp32, rounded once) on Gloo;
///              all_reduce is reproducible for the same world and tensor size.
/// Throws:      ShapeError before anything is sent; CommError from calls and from Work::wait() once the job
///              is aborted or an operation failed. Afterwards the communicator can only be destroyed.
class APUS_API Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "world", "dp", ...: used in messages.
  virtual const std::string& name() const = 0;
  /// Keys of this group alone, for status exchanges; null where there are no peers to talk to.
  virtual std::shared_ptr<Store> store() const = 0;
  /// Deadline of each operation, and of status exchanges that name none of their own (`--ddp_timeout`).
  virtual std::chrono::milliseconds timeout() const = 0;

  /// tensor [any] <- scale * reduce over ranks, in place.
  std::shared_ptr<Work> all_reduce(const at::Tensor& tensor, ReduceOptions options = {});
  /// out [n * numel(in)] flat <- the ranks' `in`, in rank order. `in` may be this rank's own part of `out`.
  std::shared_ptr<Work> all_gather(const at::Tensor& out, const at::Tensor& in);
  /// out [numel(in) / n] <- scale * this rank's part of the reduced `in`.
  /// Memory:      one more `in` (Gloo).
  std::shared_ptr<Work> reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                       ReduceOptions options = {});
  /// tensor <- root's tensor.
  std::shared_ptr<Work> broadcast(const at::Tensor& tensor, int root);
  /// Part j of `in` goes to rank j; part j of `out` comes from rank j. Both have n equal parts.
  std::shared_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in);
  /// The same with parts of in_splits[j] and out_splits[j] rows of dim 0; zeros are allowed.
  std::shared_ptr<Work> all_to_all_v(const at::Tensor& out, const at::Tensor& in,
                                     std::vector<int64_t> out_splits, std::vector<int64_t> in_splits);
  /// Starts all transfers at once, so that no order of peers can deadlock. Only the two ends of a transfer
  /// take part in it; the other ranks need not call.
  std::shared_ptr<Work> send_recv(std::vector<P2pOp> ops);
  /// Blocks the host until every rank has called it.
  void barrier();
  /// The same without blocking: the Work completes when every rank has called it.
  std::shared_ptr<Work> start_barrier();

  /// The group of the ranks with this rank's color, ordered by (key, rank). Every rank of this group calls
  /// it; a negative color takes part and gets null.
  /// Collectives: one all_gather of 16 bytes a rank.
  std::unique_ptr<Communicator> split(int64_t color, int64_t key, const std::string& name);
  /// The group of these ranks of this group, in this order, where all members know the list. Every rank of
  /// this group calls it as often as the others; a rank that is in none passes an empty list and gets null.
  std::unique_ptr<Communicator> subgroup(const std::vector<int>& ranks, const std::string& name);

  /// Ends this group, the group it was split from and all their splits, on every rank, within about a second:
  /// waiting calls throw CommError with this rank and reason. The first abort of a job is the one reported.
  virtual void abort(const std::string& reason) noexcept = 0;
  /// Throws CommError if a rank has aborted the job. For long stretches without operations; looks at the
  /// store at most once in 50 ms.
  virtual void check_running() = 0;
  /// Text that reports about this group and its relatives carry, e.g. "step 12, rows 40 to 47".
  virtual void set_note(const std::string& note) = 0;

 protected:
  Communicator();

  /// The implementations get arguments that are already checked. `info` names the call.
  virtual std::shared_ptr<Work> do_all_reduce(const OpInfo& info, const at::Tensor& tensor,
                                              const ReduceOptions& options) = 0;
  virtual std::shared_ptr<Work> do_all_gather(const OpInfo& info, const at::Tensor& out,
                                              const at::Tensor& in) = 0;
  virtual std::shared_ptr<Work> do_reduce_scatter(const OpInfo& info, const at::Tensor& out,
                                                  const at::Tensor& in, const ReduceOptions& options) = 0;
  virtual std::shared_ptr<Work> do_broadcast(const OpInfo& info, const at::Tensor& tensor, int root) = 0;
  /// Splits are in rows of dim 0, one for each rank; all_to_all arrives here too, with equal splits.
  virtual std::shared_ptr<Work> do_all_to_all_v(const OpInfo& info, const at::Tensor& out,
                                                const at::Tensor& in, const std::vector<int64_t>& out_splits,
                                                const std::vector<int64_t>& in_splits) = 0;
  virtual std::shared_ptr<Work> do_send_recv(const OpInfo& info, const std::vector<P2pOp>& ops) = 0;
  virtual std::shared_ptr<Work> do_barrier(const OpInfo& info) = 0;
  /// `index` counts the calls of subgroup on this communicator; `ranks` is not empty and contains this rank.
  virtual std::unique_ptr<Communicator> do_subgroup(int64_t index, const std::vector<int>& ranks,
                                                    const std::string& name) = 0;

 private:
  OpInfo next(OpKind kind, const at::Tensor& tensor, std::string detail = "");

  int64_t sequence_ = 0;
  int64_t subgroups_ = 0;
};

}  // namespace apus::comm
