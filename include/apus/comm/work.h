#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus::comm {

/// The operations of a Communicator.
/// Their payload, for records and bounds, is what a rank hands over: the input of all_reduce and
/// reduce_scatter, the output of all_gather, what is sent otherwise.
enum class OpKind {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kAllToAllV,
  kSendRecv,
  kBarrier,
};

/// "all_reduce", "all_gather", ...
APUS_API std::string_view op_name(OpKind kind);

/// What one call does, as the front of the communicator saw it: for checks, records and reports.
struct APUS_API OpInfo {
  /// Which operation.
  OpKind kind = OpKind::kBarrier;
  /// Ordinal of the operation in its communicator, from 1.
  int64_t sequence = 0;
  /// E.g. "Float", empty for a barrier.
  std::string dtype;
  /// Of the tensor that payload_bytes counts.
  std::vector<int64_t> shape;
  /// Input of all_reduce and reduce_scatter, output of all_gather, else what is sent.
  int64_t payload_bytes = 0;
  /// What must also agree, e.g. "sum", "root 2".
  std::string detail;

  /// "all_gather #118 Float[4, 16]"
  std::string text() const;
};

/// A running operation. Keeps the tensors alive until it has ended, whether or not the caller keeps the Work.
/// Results may be read only after wait(): that is also where a scale is applied and a dtype restored.
class APUS_API Work {
 public:
  virtual ~Work();
  /// Returns when the result is there (CPU) or ordered before the current stream's next kernel (GPU). Calling
  /// it again does nothing, or throws the same error.
  /// Throws:      CommError if the operation failed, passed its deadline or the job was aborted.
  virtual void wait() = 0;
  /// True if wait() would not block. Does not say that it went well.
  virtual bool is_completed() = 0;
};

}  // namespace apus::comm
