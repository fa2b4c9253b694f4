#pragma once

#include <ATen/core/Tensor.h>

namespace apus::memory {
class GradSink;
}

/// The embedding's kernels with tape; the table as takes_rows.
namespace apus::ops::cuda {

at::Tensor embedding(const at::Tensor& tokens_T, const at::Tensor& weight_VD, memory::GradSink* gradients);

}  // namespace apus::ops::cuda
