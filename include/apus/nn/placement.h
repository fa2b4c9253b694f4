#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "apus/base/api.h"
#include "apus/nn/module.h"

namespace apus::nn {

/// Where a model's frozen parameters go.
struct APUS_API PlaceOptions {
  at::Device device = at::kCPU;
  /// Of frozen floating parameters; absent = as they are.
  std::optional<at::ScalarType> frozen_dtype = {};
  /// The widest adapter that projections make room for beside their weights; absent = that of the adapters
  /// that they have. 0: none, so that later adapters are computed apart.
  std::optional<int64_t> room_rank = {};
};

/// Whether a tensor lies on a device; one without an index is any of its kind.
APUS_API bool is_on(const at::Tensor& tensor, at::Device device);

/// Gives every parameter that requires no gradient its place (set_data: the leaf objects stay); trainable
/// ones keep theirs, which the engine's groups decide. Stream:      the current stream. Memory:      one
/// parameter exists twice at a time.
APUS_API void place_frozen(const std::vector<NamedParameter>& parameters, const PlaceOptions& options);

}  // namespace apus::nn
