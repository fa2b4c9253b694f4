#include "ops/cuda/attention_plans.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>

#include "apus/base/error.h"

namespace apus::ops {
namespace {

void check(cudnnStatus_t status, const char* what) {
  APUS_CHECK(status == CUDNN_STATUS_SUCCESS, CudaError, what, ": ", cudnnGetErrorString(status));
}

}  // namespace

struct AttentionPlans::Worker {
  explicit Worker(int on_device) : device(on_device) { check(cudnnCreate(&handle), "cudnnCreate"); }
  ~Worker() {
    plans.clear();
    cudnnDestroy(handle);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Null where cuDNN has no kernel.
  const cuda::AttentionPlan* plan(const cuda::PlanShape& shape) {
    const auto found = plans.find(shape);
    if (found != plans.end()) return found->second.get();
    return plans.emplace(shape, cuda::AttentionPlan::build(handle, shape, why_not)).first->second.get();
  }

  const int device;
  cudnnHandle_t handle = nullptr;
  std::map<cuda::PlanShape, std::unique_ptr<cuda::AttentionPlan>> plans;
  std::string why_not;  ///< of the last plan that cannot be built
};

/// A worker for the time of a call.
class AttentionPlans::Lease {
 public:
  Lease(AttentionPlans& plans, int device) : plans_(plans), worker_(plans.borrow(device)) {}
  ~Lease() { plans_.give_back(std::move(worker_)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Worker* operator->() const { return worker_.get(); }

 private:
  AttentionPlans& plans_;
  std::unique_ptr<Worker> worker_;
};

AttentionPlans::AttentionPlans() = default;
AttentionPlans::~AttentionPlans() = default;

std::unique_ptr<AttentionPlans::Worker> AttentionPlans::borrow(int device) {
  {
    const std::scoped_lock lock(mutex_);
    auto& idle = free_[device];
    if (!idle.empty()) {
      std::unique_ptr<Worker> worker = std::move(idle.back());
      idle.pop_back();
      return worker;
    }
  }
  return std::make_unique<Worker>(device);
}

void AttentionPlans::give_back(std::unique_ptr<Worker> worker) {
  const std::scoped_lock lock(mutex_);
  auto& idle = free_[worker->device];
  idle.push_back(std::move(worker));
}

bool AttentionPlans::has(const cuda::PlanShape& shape) {
  const Lease worker(*this, c10::cuda::current_device());
  return worker->plan(shape) != nullptr;
}

void AttentionPlans::run(const cuda::PlanShape& shape, const cuda::PlanBuffers& buffers,
                         c10::cuda::CUDAStream stream) {
  const Lease worker(*this, stream.device_index());
  const cuda::AttentionPlan* const plan = worker->plan(shape);
  APUS_CHECK(plan != nullptr, NotSupported, "cuDNN has no attention kernel for ", shape.heads, "/",
             shape.kv_heads, " heads of ", shape.head_dim, ": ", worker->why_not);
  check(cudnnSetStream(worker->handle, stream.stream()), "cudnnSetStream");
  const at::Tensor workspace =
      at::empty({plan->workspace_bytes()}, at::TensorOptions().dtype(at::kByte).device(stream.device()));
  plan->execute(worker->handle, buffers, workspace.mutable_data_ptr());
}

}  // namespace apus::ops
