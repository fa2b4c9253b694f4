#include "ops/cuda/lt_problem.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <cstring>

#include "apus/base/error.h"

namespace apus::ops::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

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

const at::Tensor& c_of(const Gemm& g) {
  return g.c.defined() ? g.c : g.d;
}

/// How the choice may be made, as far as it is not for the product alone to say.
GemmChoice choice_of(const Gemm& g) {
  return at::globalContext().deterministicAlgorithms() ? GemmChoice::kFirst : g.choice;
}

template <typename Value>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute,
         const Value& value) {
  check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value),
        "MatmulDescSetAttribute");
}

void describe(cublasLtMatrixLayoutOpaque_t& layout, const at::Tensor& x) {
  check(cublasLtMatrixLayoutInit(&layout, data_type(x), static_cast<uint64_t>(x.size(1)),
                                 static_cast<uint64_t>(x.size(0)), row_stride(x)),
        "MatrixLayoutInit");
}

/// Parts of a sum are added in fp32: in a workspace, or in D where that is fp32 itself.
uint32_t reductions(const Gemm& g) {
  const auto apart = static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  return g.d.scalar_type() == at::kFloat ? apart | static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_INPLACE)
                                         : apart;
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmPlan::algorithm));

}  // namespace

int64_t row_stride(const at::Tensor& x) {
  return x.size(0) == 1 ? std::max(x.stride(0), x.size(1)) : x.stride(0);
}

/// Beta is left out: whether a sum is begun or added to in place, one algorithm does both.
GemmKey key_of(const Gemm& g) {
  const at::Tensor& c = c_of(g);
  const int64_t flags = (g.bias_N.defined() ? 1 : 0) + (g.c.defined() ? 2 : 0) +
                        4 * static_cast<int64_t>(choice_of(g)) + 16 * static_cast<int64_t>(g.form);
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

double operations_of(const Gemm& g) {
  const auto inner = static_cast<double>(g.a.size(g.form == GemmForm::kTn ? 0 : 1));
  return 2.0 * static_cast<double>(g.d.numel()) * inner;
}

LtProblem::LtProblem(const Gemm& product) : product_(product) {
  check(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescInit");
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, product.form == GemmForm::kNt ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, product.form == GemmForm::kTn ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (product.bias_N.defined()) {
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(product.bias_N));
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias_N.const_data_ptr());
  }
  describe(first_, product.b);
  describe(second_, product.a);
  describe(c_, c_of(product));
  describe(d_, product.d);
}

std::vector<GemmPlan> LtProblem::proposals(int wanted) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "MatmulPreferenceInit");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
          "MatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions(product_));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment_of(product_.b)));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment_of(product_.a)));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment_of(c_of(product_))));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment_of(product_.d)));
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(wanted));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), &operation_, &first_, &second_,
                                     &c_, &d_, &preference, wanted, found.data(), &count);
  found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
  std::vector<GemmPlan> plans;
  for (const cublasLtMatmulHeuristicResult_t& proposal : found) {
    if (proposal.state != CUBLAS_STATUS_SUCCESS) continue;
    GemmPlan& plan = plans.emplace_back();
    std::memcpy(plan.algorithm.data(), &proposal.algo, sizeof proposal.algo);
    plan.workspace_bytes = proposal.workspaceSize;
    plan.found = true;
  }
  return plans;
}

bool LtProblem::takes(GemmPlan& plan) {
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, plan.algorithm.data(), sizeof algorithm);
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(at::cuda::getCurrentCUDABlasLtHandle(), &operation_,
                                                        &first_, &second_, &c_, &d_, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes) return false;
  plan.workspace_bytes = result.workspaceSize;
  plan.is_checked = true;
  return true;
}

bool LtProblem::launch(const GemmPlan& plan, cudaStream_t stream, void* d) {
  c10::DataPtr workspace;
  if (plan.workspace_bytes > 0)
    workspace = c10::cuda::CUDACachingAllocator::get()->allocate(plan.workspace_bytes);
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, plan.algorithm.data(), sizeof algorithm);
  const auto alpha = static_cast<float>(product_.alpha), beta = static_cast<float>(product_.beta);
  const cublasStatus_t status = cublasLtMatmul(
      at::cuda::getCurrentCUDABlasLtHandle(), &operation_, &alpha, product_.b.const_data_ptr(), &first_,
      product_.a.const_data_ptr(), &second_, &beta, c_of(product_).const_data_ptr(), &c_,
      d ? d : product_.d.mutable_data_ptr(), &d_, &algorithm, workspace.get(), plan.workspace_bytes, stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return false;
  check(status, "Matmul");
  return true;
}

}  // namespace apus::ops::cuda
