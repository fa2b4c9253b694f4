#pragma once

#include <cstdint>
#include <string_view>

#include "apus/base/api.h"

namespace apus::optim {

/// Whether weight decay acts on a parameter: not on biases (a name whose last part is "bias") nor on vectors
/// and scalars (norm weights); matrices are decayed, embeddings and LoRA's A and B among them.
/// This is the rule of transformers' Trainer.
/// `name` is the full dotted name, `dims` the number of dimensions of the whole parameter.
APUS_API bool takes_weight_decay(std::string_view name, int64_t dims);

}  // namespace apus::optim
