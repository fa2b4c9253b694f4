#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "apus/base/safetensors.h"

namespace apus::testing {

/// A copy of a stored fp32 tensor.
inline at::Tensor read_floats(const TensorView& view) {
  at::Tensor values = at::empty(view.shape, at::kFloat);
  std::memcpy(values.mutable_data_ptr(), view.data.data(), view.data.size());
  return values;
}

}  // namespace apus::testing
