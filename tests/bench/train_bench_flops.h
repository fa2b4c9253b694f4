#pragma once

#include "tests/bench/train_bench_case.h"

namespace apus::bench {

/// Floating-point operations of one step of a case; a multiply-add counts two. Formulas:
/// docs/benchmarks/README.md.
struct StepFlops {
  /// Products with weights, forward and backward, the head's at supervised rows only. Frozen weights have no
  /// product for a weight gradient; the first block's input gradient counts; adapters' own products do not.
  double gemm = 0;
  /// Causal attention, forward: 4 x heads x head size x (length + 1) / 2 a token.
  double attention_forward = 0;
  /// Backward: twice the forward (kernels do 2.5 times, as they make the scores again: not counted).
  double attention_backward = 0;
  /// Of `gemm`, what no loss reads: the last block's products behind attention at rows that are not
  /// supervised. Figures count it (as peers' do, who compute it), the floor does not.
  double unread = 0;

  double total() const { return gemm + attention_forward + attention_backward; }
};

/// What the case's step needs, recompute not counted; DPO with adapter-off has the reference's forward too.
StepFlops step_flops(const TrainCase& job);

/// Seconds of a step in which nothing but these products, without those that nobody reads, and attention run,
/// at the case's rates. The
/// attention rates are those of speed.md: forward operations over time, and 2.5 x forward operations over
/// time of backward.
double floor_seconds(const TrainCase& job);

}  // namespace apus::bench
