#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace apus::ops {

/// Which operand of a product is read transposed.
enum class GemmForm {
  kNt,  ///< D = A B^T: rows [M, K] times a weight [N, K]
  kNn,  ///< D = A B: a gradient [M, K] times a weight [K, N]
  kTn,  ///< D = A^T B: a weight's gradient, from [K, M] and [K, N]
};

/// How a GPU's algorithm is chosen among cuBLASLt's proposals.
enum class GemmChoice {
  /// The first; for a large product that comes back, from its third use on, the fastest of a dozen, for which
  /// the host waits once.
  kAuto,
  kFirst,  ///< the first, always
  kTimed,  ///< the fastest of a dozen from the first use on, however small the product is
};

/// D = alpha * op(A) op(B) + beta * C + bias, without tape.
///
/// Shapes:      row-major matrices with unit inner stride and any row stride; C as D; bias [N].
/// Dtypes:      A and B alike, bf16 or fp32; D theirs, or fp32 where they are bf16; C and bias as D.
///              Accumulation in fp32, never through TF32.
struct Gemm {
  GemmForm form = GemmForm::kNt;
  at::Tensor a, b;
  at::Tensor d;
  double alpha = 1.0;
  /// 0: what C holds is not read, NaN included.
  double beta = 0.0;
  /// Undefined: D itself. Else it may not overlap D.
  at::Tensor c = {};
  /// Undefined: none.
  at::Tensor bias_N = {};
  /// With at::globalContext().deterministicAlgorithms() it is kFirst in any case.
  GemmChoice choice = GemmChoice::kAuto;
};

/// Computes it. On a GPU with cuBLASLt, by what gemm_twin does where that refuses the operands; nothing is
/// launched for an empty D.
/// Stream:      the current stream; the host does not block, but while a product is timed (GemmChoice), and
///              then not in a stream that is captured.
/// Memory:      on a GPU up to 32 MiB of the caching allocator while it is queued; while a sum in place is
///              timed, a copy of D of up to 256 MiB.
/// Determinism: bitwise for the same shapes, strides and alignments and the same choice: timing may change a
///              large product's last bits at its third use, and from rank to rank.
/// Throws:      ShapeError if the operands do not fit.
void gemm(const Gemm& product);

/// The same through ATen, on any device: what the CPU runs and what tests compare with. D is rounded once
/// more than in gemm.
void gemm_twin(const Gemm& product);

namespace cuda {

/// False, and nothing done, where cuBLASLt does not take the operands. These fit, and D is not empty.
bool lt_gemm(const Gemm& product);

}  // namespace cuda
}  // namespace apus::ops
