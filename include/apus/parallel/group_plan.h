#pragma once

#include <cstdint>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/param_group.h"
#include "apus/nn/causal_lm.h"

namespace apus::parallel {

/// A model's parameters as the engine sees them: one list for each unit, in forward order (embedding, blocks,
/// head). A tied weight stands in two lists.
struct APUS_API ModelUnits {
  std::vector<std::vector<nn::NamedParameter>> units;
};

/// Reads the units from a model.
APUS_API ModelUnits model_units(nn::CausalLm& model);

/// Puts the trainable parameters into groups, last unit first (the order in which gradients complete).
///
/// Neighbouring units share a group while it stays within `bucket_elements` (a unit is never split, so one
/// larger than that is a group of its own) and while the dtype is the same. A weight with several uses belongs
/// to the unit that comes first in forward order: there its gradient completes.
/// Throws: ConfigError if nothing is trainable or bucket_elements < 1.
APUS_API std::vector<std::vector<memory::GroupParameter>> plan_groups(const ModelUnits& model,
                                                                      int64_t bucket_elements);

}  // namespace apus::parallel
