#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "apus/train/memory_plan_shape.h"

namespace apus::train {

/// One projection of a block, with its trainable adapters.
struct ProjectionShape {
  int64_t in = 0;
  int64_t out = 0;
  bool trains_weight = false;
  bool trains = false;      ///< anything of it
  int64_t rank = 0;         ///< of all its trainable adapters
  int64_t widest_rank = 0;  ///< of one of its adapters, trainable or not
  int64_t gradients = 0;    ///< elements

  /// The weight's gradient, or an adapter's A, reads the input.
  bool keeps_input() const { return trains_weight || rank > 0; }
};

/// The parameters of `unit` under a module of that name.
inline ProjectionShape projection(const UnitShape& unit, std::string_view module) {
  const std::string inside = "." + std::string(module) + ".";
  ProjectionShape shape;
  for (const ParameterShape& parameter : unit.parameters) {
    if (parameter.name.find(inside) == std::string::npos) continue;
    const bool is_adapter = parameter.name.find(".lora_") != std::string::npos;
    const bool is_a = parameter.name.find(".lora_A.") != std::string::npos;
    if (!is_adapter && parameter.sizes.size() == 2) {
      shape.out = parameter.sizes[0];
      shape.in = parameter.sizes[1];
      shape.trains_weight |= parameter.trainable;  // an adapter's copy stands behind the frozen base
    }
    if (is_a) shape.widest_rank = std::max(shape.widest_rank, parameter.sizes[0]);
    if (!parameter.trainable) continue;
    shape.trains = true;
    shape.gradients += parameter.numel();
    if (is_a) shape.rank += parameter.sizes[0];
  }
  return shape;
}

/// Whether two blocks cost the same: parameters of equal shapes in equal order, whatever their layer's
/// number.
inline bool alike(const UnitShape& a, const UnitShape& b) {
  return std::ranges::equal(a.parameters, b.parameters, [](const ParameterShape& x, const ParameterShape& y) {
    return x.sizes == y.sizes && x.dtype == y.dtype && x.trainable == y.trainable;
  });
}

}  // namespace apus::train
