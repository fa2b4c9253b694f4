#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "ops/gemm.h"
#include "ops/gemm_plans.h"

namespace apus::ops::cuda {

/// A product in cuBLASLt's terms. It refers to the Gemm, which must outlive it.
///
/// cuBLASLt thinks in columns: a row-major matrix [R, C] with row stride S is its column-major one [C, R]
/// with leading dimension S, so D = op(A) op(B) is asked for as D^T = op(B)^T op(A)^T and the operands swap
/// places.
class LtProblem final {
 public:
  explicit LtProblem(const Gemm& product);

  /// cuBLASLt's proposals, its favourite first; at most `wanted`, and none of what it cannot compute.
  std::vector<GemmPlan> proposals(int wanted);

  /// Whether cuBLASLt computes the product by this plan; takes its need of workspace over.
  bool takes(GemmPlan& plan);

  /// Queues the product; false if cuBLASLt refuses it. `d`: where the result goes, null: to D.
  bool launch(const GemmPlan& plan, cudaStream_t stream, void* d = nullptr);

 private:
  const Gemm& product_;
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t first_, second_, c_, d_;
};

/// What its algorithm depends on.
GemmKey key_of(const Gemm& product);

/// Distance of rows; a single row has any.
int64_t row_stride(const at::Tensor& x);

/// The fastest of cuBLASLt's proposals, the first among equals; absent where they cannot be timed now.
/// `finalists`: how many beside the first run for long.
/// Stream:      the current stream; the host waits for it. D holds anything afterwards if beta is 0 or C is
///              another tensor, and what it held otherwise.
std::optional<GemmPlan> timed_plan(LtProblem& problem, const Gemm& product, cudaStream_t stream,
                                   int finalists);

/// Floating-point operations of the product.
double operations_of(const Gemm& product);

}  // namespace apus::ops::cuda
