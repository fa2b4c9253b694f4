#pragma once

#include <cstdint>

#include "apus/base/api.h"
#include "apus/nn/module.h"

namespace apus::models {

/// How parameters are drawn.
struct APUS_API InitOptions {
  uint64_t seed = 0;
  /// Of matrices; 0.02 is the initializer_range of the known models.
  double standard_deviation = 0.02;
};

/// Fills a model for training from nothing: matrices normal, norm weights one, biases zero.
/// Each element depends on the seed, the parameter's full name and the element's index alone (Philox),
/// whatever the dtype, the order of parameters or the rest of the model. A 1-dim parameter whose name does
/// not end in "bias" counts as a norm weight. requires_grad stays as it is.
APUS_API void init_random(nn::Module& module, const InitOptions& options = {});

}  // namespace apus::models
