#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/group_parameter.h"
#include "apus/nn/causal_lm.h"

namespace apus::parallel {

/// Where a unit's gathered parameters live.
enum class SlotKind {
  kShared,  ///< in one of two slots that all such units share: the blocks
  kOwn,     ///< in a slot of its own size: embedding, head
};

/// A piece of a model that is gathered, run, recomputed and reduced as one, with everything that it reads.
struct APUS_API ModelUnit {
  std::string name;
  /// Every parameter that the unit reads, trainable or frozen. A tied weight stands in two units.
  std::vector<nn::NamedParameter> parameters;
  SlotKind slot = SlotKind::kShared;
};

/// A model as the engine sees it: its units in forward order.
struct APUS_API ModelUnits {
  std::vector<ModelUnit> units;
};

/// Reads the units from a model: embedding, blocks, head.
APUS_API ModelUnits model_units(nn::CausalLm& model);

/// The trainable parameters, each in the first unit that uses it, in groups, last unit first (the order in
/// which gradients complete; a weight with several uses completes where it is used first).
///
/// Neighbouring units share a group while it stays within `bucket_elements` (a unit is never split, so one
/// larger than that is a group of its own) and while the dtype is the same. Within a unit matrices come first.
/// Empty if nothing is trainable. Throws: ConfigError if bucket_elements < 1.
APUS_API std::vector<std::vector<memory::GroupParameter>> plan_groups(const ModelUnits& model,
                                                                      int64_t bucket_elements);

/// The frozen parameters of each unit, each tensor in the first unit that uses it, matrices first.
APUS_API std::vector<std::vector<memory::GroupParameter>> frozen_parameters(const ModelUnits& model);

}  // namespace apus::parallel
