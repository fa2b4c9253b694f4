// Matrix products through cuBLASLt. ATen's mm would do for most, but not for four things that a training step
// lives on: an fp32 result of bf16 operands added into a gradient, a residual that is another tensor than the
// result, a bias in the same pass, and the choice of the algorithm.
#include "ops/gemm.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>
#include <vector>

#include "ops/cuda/device_gemm_plans.h"
#include "ops/cuda/lt_problem.h"

namespace apus::ops {
namespace {

/// Below it (4 us) nothing is gained that timing could see.
constexpr double kLeastTimedOperations = 3e9;
/// From here on (0.15 ms) several proposals are tried at the power cap.
constexpr double kManyOperations = 1e11;

bool takes(const Gemm& g) {
  const auto fits = [](const at::Tensor& x) {
    return (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat) &&
           cuda::row_stride(x) >= x.size(1) && x.numel() > 0;
  };
  return fits(g.a) && fits(g.b) && fits(g.d) && (!g.c.defined() || fits(g.c)) &&
         (!g.bias_N.defined() || g.bias_N.is_contiguous());
}

/// Whether the product is to be timed before this use. Deterministic products never are, and none while a
/// graph is captured, where the host cannot wait.
bool wants_timing(const Gemm& g, const GemmPlans::Use& use) {
  if (at::globalContext().deterministicAlgorithms() || g.choice == GemmChoice::kFirst) return false;
  const bool is_settled = use.plan && (use.plan->is_settled || !use.plan->found);
  const bool wants = g.choice == GemmChoice::kTimed
                         ? !is_settled
                         : use.wants_timing && cuda::operations_of(g) >= kLeastTimedOperations;
  return wants && c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None;
}

GemmPlan first_plan(cuda::LtProblem& problem) {
  const std::vector<GemmPlan> found = problem.proposals(1);
  return found.empty() ? GemmPlan() : found[0];
}

/// The plan of this use, remembered.
GemmPlan plan_of(cuda::LtProblem& problem, const Gemm& g, const GemmKey& key, cudaStream_t stream) {
  GemmPlans& plans = cuda::device_gemm_plans();
  GemmPlans::Use use = plans.use(key);
  if (use.plan && !use.plan->is_checked) {
    if (!problem.takes(*use.plan)) use.plan = first_plan(problem);
    plans.keep(key, *use.plan);
  }
  if (wants_timing(g, use)) {
    const int finalists = cuda::operations_of(g) >= kManyOperations ? plans.finalists() : 1;
    if (const std::optional<GemmPlan> timed = cuda::timed_plan(problem, g, stream, finalists)) {
      plans.keep_timed(key, *timed);
      return *timed;
    }
  }
  if (!use.plan) {
    use.plan = first_plan(problem);
    plans.keep(key, *use.plan);
  }
  return *use.plan;
}

}  // namespace

bool cuda::lt_gemm(const Gemm& g) {
  if (!takes(g)) return false;
  const c10::cuda::CUDAGuard guard(g.d.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  LtProblem problem(g);
  const GemmKey key = key_of(g);
  const GemmPlan plan = plan_of(problem, g, key, stream);
  if (!plan.found) return false;
  if (problem.launch(plan, stream)) return true;
  device_gemm_plans().keep(key, {});
  return false;
}

}  // namespace apus::ops
