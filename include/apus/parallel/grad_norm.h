#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "apus/base/api.h"

namespace apus::optim {
class UpdateThreads;
}

namespace apus::parallel {

/// A run of elements whose squares count with a weight other than 1 in the norm.
struct APUS_API WeightedRun {
  int64_t begin = 0;  ///< first element, from the start of the gradient
  int64_t end = 0;    ///< one past the last
  double weight = 1.0;
};

/// Sums of squares of a flat gradient, one for each block of FlatLayout::kBlockElements, in double.
///
/// Maths:       sum over the block of weight * g^2.
/// Shapes:      grad fp32 | bf16 [n] on the CPU, contiguous; runs ordered and disjoint, elements outside of
///              them weigh 1.
/// Threads:     those of `team`; without one as many as libtorch takes, if it pays to start them.
/// Determinism: bitwise. Shards are cut at block borders, so a block's sum does not depend on the world.
/// Throws:      ShapeError for another dtype or layout.
APUS_API std::vector<double> block_sums_of_squares(const at::Tensor& grad_N,
                                                   std::span<const WeightedRun> runs = {},
                                                   optim::UpdateThreads* team = nullptr);

/// The sum of the blocks' sums, added in order.
APUS_API double sum_of_squares(const at::Tensor& grad_N, std::span<const WeightedRun> runs = {});

}  // namespace apus::parallel
