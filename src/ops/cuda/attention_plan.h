#pragma once

#include <cudnn.h>

#include <memory>
#include <string>

#include "ops/attention_shape.h"

namespace apus::ops::cuda {

/// Device pointers of one call. Rows of q, k, v, dout and of the gradients are dense.
struct PlanBuffers {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  void* stats = nullptr;  ///< fp32 [T, N], of an even plan [sequences, N, length]: log of the sum of exp
  const void* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  const void* lengths = nullptr;     ///< int32 [sequences]
  const void* q_offsets = nullptr;   ///< int32 [sequences + 1] elements, for q, dout and dq
  const void* kv_offsets = nullptr;  ///< for k, v, dk, dv
  const void* out_offsets = nullptr;
  const void* stats_offsets = nullptr;
};

/// One cuDNN execution plan of causal attention over packed or padded sequences in bf16.
class AttentionPlan {
 public:
  /// Null where cuDNN has no kernel for it on this card; then `why_not` says so.
  static std::unique_ptr<AttentionPlan> build(cudnnHandle_t handle, const PlanShape& shape,
                                              std::string& why_not);

  virtual ~AttentionPlan() = default;
  virtual int64_t workspace_bytes() const = 0;
  /// Launches on the handle's stream. A handle may be used by one thread at a time.
  /// Throws:    CudaError if cuDNN refuses.
  virtual void execute(cudnnHandle_t handle, const PlanBuffers& buffers, void* workspace) const = 0;
};

}  // namespace apus::ops::cuda
