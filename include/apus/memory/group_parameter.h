#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "apus/base/api.h"

namespace apus::memory {

/// One parameter of a group. The tensor handle is the user's own leaf.
struct APUS_API GroupParameter {
  std::string name;
  at::Tensor tensor;
  /// Ordinal of the unit that it belongs to; parameters of one unit stand together.
  int unit = 0;
};

}  // namespace apus::memory
