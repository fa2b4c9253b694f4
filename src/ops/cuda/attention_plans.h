#pragma once

#include <c10/cuda/CUDAStream.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/cuda/attention_plan.h"

namespace apus::ops {

/// Handles and plans, built where a call first needs them.
///
/// A handle, and with it its plans, may be used by one thread at a time. So a call borrows a worker: the one
/// given back last, or a new one where all are in use. A training process has its forward on one thread and
/// its backward on another, never at once: both get the same worker, and each plan is built once. Ranks that
/// are threads get a worker each.
class AttentionPlans final {
 public:
  AttentionPlans();
  ~AttentionPlans();

  /// Whether cuDNN has kernels for the shape on the current device; builds the plan where it is new.
  bool has(const cuda::PlanShape& shape);
  /// Launches on the stream; a workspace comes from the caching allocator.
  /// Throws:    CudaError if cuDNN fails; NotSupported if it has no kernel.
  void run(const cuda::PlanShape& shape, const cuda::PlanBuffers& buffers, c10::cuda::CUDAStream stream);

 private:
  struct Worker;
  class Lease;

  std::unique_ptr<Worker> borrow(int device);
  void give_back(std::unique_ptr<Worker> worker);

  std::mutex mutex_;
  std::map<int, std::vector<std::unique_ptr<Worker>>> free_;  ///< by device, the last used behind
};

}  // namespace apus::ops
