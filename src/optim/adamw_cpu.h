#pragma once

#include "apus/optim/adamw.h"

namespace apus::optim::detail {

struct AdamwKernels;

/// adamw_step on the CPU; the arguments are checked. `kernels` is the pass to take, for tests; null = the
/// best.
void adamw_step_on_cpu(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                       const AdamwSegments& segments, const AdamwOptions& options, const GradScaling& scaling,
                       const AdamwKernels* kernels = nullptr);

}  // namespace apus::optim::detail
