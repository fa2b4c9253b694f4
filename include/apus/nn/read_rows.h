#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "apus/base/api.h"

namespace apus::nn {

struct DropoutRows;

/// The rows of a pass whose last hidden states are read: those that predict supervised tokens. What other
/// rows would be behind the last block's attention, nobody asks.
struct APUS_API ReadRows {
  /// int64 [M] where the hidden rows are, never descending; a row may be read more than once.
  at::Tensor rows_M;
  /// PassContext::dropout at these rows (see dropout_at); null where that is null.
  std::shared_ptr<const DropoutRows> dropout = {};
};

}  // namespace apus::nn
