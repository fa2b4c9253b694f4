#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "apus/parallel/grad_norm.h"
#include "apus/parallel/step_update.h"

namespace apus::parallel::cuda {

/// The runs where kernels can read them; undefined if there are none. The host waits for the upload.
at::Tensor upload_runs(std::span<const WeightedRun> runs, at::Device device);

/// sums_B fp64 [ceil(n / 1024)] <- the blocks' sums of squares; `runs` from upload_runs.
void block_sums_of_squares(const at::Tensor& grad_N, const at::Tensor& runs, const at::Tensor& sums_B);

/// As UpdateOptions has them.
struct NormScales {
  double max_norm = 0.0;
  double loss_scale = 1.0;
};

/// Norm, clip factor and flag of a step from total fp64 [1] (the sum of squares) or [2] (and a flag), and one
/// more step in step_1 int64 [1] unless it is skipped.
StepScalars step_scalars(const at::Tensor& total, const NormScales& scales, const at::Tensor& step_1);

}  // namespace apus::parallel::cuda
