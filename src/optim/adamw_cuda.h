#pragma once

#include "apus/optim/adamw.h"

namespace apus::optim::cuda {

/// adamw_step on a GPU; the arguments are checked.
void adamw_step(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                const AdamwSegments& segments, const AdamwOptions& options, const GradScaling& scaling);

}  // namespace apus::optim::cuda
