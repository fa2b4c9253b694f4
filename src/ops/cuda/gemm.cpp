// Matrix products through cuBLASLt. ATen's mm would do for most, but not for four things that a training step
// lives on: an fp32 result of bf16 operands added into a gradient, a residual that is another tensor than the
// result, a bias in the same pass, and the choice of the algorithm.
//
// cuBLASLt thinks in columns: a row-major matrix [R, C] with row stride S is its column-major one [C, R] with
// leading dimension S, so D = op(A) op(B) is asked for as D^T = op(B)^T op(A)^T and the operands swap places.
#include "ops/gemm.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "apus/base/error.h"

namespace apus::ops {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kTimedCandidates = 8;

void check(cublasStatus_t status, const char* what) {
  APUS_CHECK(status == CUBLAS_STATUS_SUCCESS, CudaError, "cuBLASLt: ", what, " failed with ",
             cublasLtGetStatusName(status));
}

cudaDataType_t data_type(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// The largest power of two up to 256 that divides the address.
int64_t alignment_of(const at::Tensor& x) {
  const auto address = reinterpret_cast<uintptr_t>(x.const_data_ptr());
  int64_t alignment = 256;
  while (address % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

/// Distance of rows; a single row has any.
int64_t row_stride(const at::Tensor& x) {
  return x.size(0) == 1 ? std::max(x.stride(0), x.size(1)) : x.stride(0);
}

const at::Tensor& c_of(const Gemm& g) {
  return g.c.defined() ? g.c : g.d;
}

/// What a choice of algorithm depends on.
using Key = std::array<int64_t, 18>;

Key key_of(const Gemm& g) {
  const at::Tensor& c = c_of(g);
  const int64_t flags = (g.bias_N.defined() ? 1 : 0) + (g.beta != 0.0 ? 2 : 0) + (g.c.defined() ? 4 : 0) +
                        (g.choice == GemmChoice::kTimed ? 8 : 0) + 16 * static_cast<int64_t>(g.form);
  return {g.d.device().index(),
          flags,
          static_cast<int64_t>(g.a.scalar_type()),
          static_cast<int64_t>(g.d.scalar_type()),
          g.a.size(0),
          g.a.size(1),
          g.d.size(0),
          g.d.size(1),
          row_stride(g.a),
          row_stride(g.b),
          row_stride(c),
          row_stride(g.d),
          alignment_of(g.a),
          alignment_of(g.b),
          alignment_of(c),
          alignment_of(g.d),
          g.bias_N.defined() ? alignment_of(g.bias_N) : 0,
          0};
}

/// An algorithm for a shape; `found` is false where cuBLASLt has none.
struct Plan {
  cublasLtMatmulAlgo_t algorithm = {};
  size_t workspace_bytes = 0;
  bool found = false;
};

/// Remembers the algorithm of each shape: what it holds changes how fast a product is, never what it is.
class PlanMemo final {
 public:
  std::optional<Plan> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    return found == plans_.end() ? std::nullopt : std::optional(found->second);
  }
  void keep(const Key& key, const Plan& plan) {
    const std::lock_guard lock(mutex_);
    plans_.insert_or_assign(key, plan);
  }

 private:
  std::mutex mutex_;
  std::map<Key, Plan> plans_;
};

PlanMemo& plan_memo() {
  static PlanMemo memo;
  return memo;
}

/// A product in cuBLASLt's terms.
class Problem final {
 public:
  explicit Problem(const Gemm& g) : g_(g) {
    check(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, g.form == GemmForm::kNt ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, g.form == GemmForm::kTn ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (g.bias_N.defined()) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(g.bias_N));
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias_N.const_data_ptr());
    }
    describe(first_, g.b);
    describe(second_, g.a);
    describe(c_, c_of(g));
    describe(d_, g.d);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> proposals(int wanted) {
    cublasLtMatmulPreferenceOpaque_t preference;
    check(cublasLtMatmulPreferenceInit(&preference), "MatmulPreferenceInit");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
            "MatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Parts of a sum are never rounded to bf16 before they are added.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment_of(g_.b)));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment_of(g_.a)));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment_of(c_of(g_))));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment_of(g_.d)));
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(wanted));
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), &operation_, &first_, &second_,
                                       &c_, &d_, &preference, wanted, found.data(), &count);
    found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
    std::erase_if(found, [](const auto& proposal) { return proposal.state != CUBLAS_STATUS_SUCCESS; });
    return found;
  }

  /// Queues the product; false if cuBLASLt refuses it.
  bool launch(const Plan& plan, cudaStream_t stream) {
    c10::DataPtr workspace;
    if (plan.workspace_bytes > 0)
      workspace = c10::cuda::CUDACachingAllocator::get()->allocate(plan.workspace_bytes);
    const auto alpha = static_cast<float>(g_.alpha), beta = static_cast<float>(g_.beta);
    const cublasStatus_t status = cublasLtMatmul(
        at::cuda::getCurrentCUDABlasLtHandle(), &operation_, &alpha, g_.b.const_data_ptr(), &first_,
        g_.a.const_data_ptr(), &second_, &beta, c_of(g_).const_data_ptr(), &c_, g_.d.mutable_data_ptr(), &d_,
        &plan.algorithm, workspace.get(), plan.workspace_bytes, stream);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return false;
    check(status, "Matmul");
    return true;
  }

 private:
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(&operation_, attribute, &value, sizeof value),
          "MatmulDescSetAttribute");
  }

  static void describe(cublasLtMatrixLayoutOpaque_t& layout, const at::Tensor& x) {
    check(cublasLtMatrixLayoutInit(&layout, data_type(x), static_cast<uint64_t>(x.size(1)),
                                   static_cast<uint64_t>(x.size(0)), row_stride(x)),
          "MatrixLayoutInit");
  }

  const Gemm& g_;
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t first_, second_, c_, d_;
};

/// Milliseconds of a few runs; infinite if the plan is refused.
float time_plan(Problem& problem, const Plan& plan, cudaStream_t stream) {
  constexpr int kRuns = 3;
  cudaEvent_t begin = nullptr, end = nullptr;
  float milliseconds = std::numeric_limits<float>::infinity();
  if (!problem.launch(plan, stream)) return milliseconds;
  C10_CUDA_CHECK(cudaEventCreate(&begin));
  C10_CUDA_CHECK(cudaEventCreate(&end));
  C10_CUDA_CHECK(cudaEventRecord(begin, stream));
  for (int run = 0; run < kRuns; ++run) problem.launch(plan, stream);
  C10_CUDA_CHECK(cudaEventRecord(end, stream));
  C10_CUDA_CHECK(cudaEventSynchronize(end));
  C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  C10_CUDA_CHECK(cudaEventDestroy(begin));
  C10_CUDA_CHECK(cudaEventDestroy(end));
  return milliseconds;
}

/// Whether running the product several times leaves what one run does, and the host may wait.
bool may_time(const Gemm& g) {
  const bool repeatable = g.beta == 0.0 || g.c.defined();
  return g.choice == GemmChoice::kTimed && repeatable &&
         c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None;
}

Plan choose(Problem& problem, const Gemm& g, cudaStream_t stream) {
  const auto proposals = problem.proposals(may_time(g) ? kTimedCandidates : 1);
  Plan best;
  float least = std::numeric_limits<float>::infinity();
  for (const auto& proposal : proposals) {
    const Plan plan{proposal.algo, proposal.workspaceSize, true};
    const float taken = proposals.size() > 1 ? time_plan(problem, plan, stream) : 0.0F;
    if (taken >= least) continue;
    least = taken;
    best = plan;
  }
  return best;
}

bool takes(const Gemm& g) {
  const auto fits = [](const at::Tensor& x) {
    return (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat) &&
           row_stride(x) >= x.size(1) && x.numel() > 0;
  };
  return fits(g.a) && fits(g.b) && fits(g.d) && fits(c_of(g)) &&
         (!g.bias_N.defined() || g.bias_N.is_contiguous());
}

}  // namespace

bool cuda::lt_gemm(const Gemm& g) {
  if (!takes(g)) return false;
  const c10::cuda::CUDAGuard guard(g.d.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  Problem problem(g);
  const Key key = key_of(g);
  std::optional<Plan> plan = plan_memo().find(key);
  if (!plan) {
    plan = choose(problem, g, stream);
    plan_memo().keep(key, *plan);
  }
  if (!plan->found) return false;
  if (problem.launch(*plan, stream)) return true;
  plan_memo().keep(key, {});
  return false;
}

}  // namespace apus::ops
