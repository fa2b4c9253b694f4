#include "train/memory_plan_groups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "apus/memory/flat_layout.h"
#include "apus/parallel/host_update.h"
#include "train/memory_plan_fused.h"
#include "train/memory_plan_projection.h"

namespace apus::train {
namespace {

using parallel::Placement;
using Parameters = std::vector<const ParameterShape*>;

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

bool is_adapter(const ParameterShape& parameter) {
  return parameter.name.find(".lora_") != std::string::npos;
}

int64_t elements(const Parameters& parameters) {
  int64_t sum = 0;
  for (const ParameterShape* parameter : parameters) sum += parameter->numel();
  return sum;
}

/// The parameters of each unit that are trainable, or that are not; each in the first unit that uses it.
std::vector<Parameters> owned(const ModelShape& model, bool trainable) {
  std::set<std::string_view> seen;
  std::vector<Parameters> units;
  for (const UnitShape& unit : model.units) {
    units.emplace_back();
    for (const ParameterShape& parameter : unit.parameters) {
      if (parameter.trainable != trainable || !seen.insert(parameter.name).second) continue;
      units.back().push_back(&parameter);
    }
  }
  return units;
}

/// A group that still takes units.
struct OpenGroup {
  std::vector<memory::FlatEntry> entries;
  int64_t elements = 0;
  size_t first_unit = 0, last_unit = 0;
  at::ScalarType dtype = at::kFloat;
};

/// As parallel::plan_groups: from the last unit to the first, neighbours together up to the bucket's size.
std::vector<OpenGroup> open_groups(const std::vector<Parameters>& units, int64_t bucket) {
  std::vector<OpenGroup> groups;
  std::map<at::ScalarType, size_t> open;
  for (size_t unit = units.size(); unit-- > 0;) {
    std::map<at::ScalarType, Parameters> by_dtype;
    for (const ParameterShape* parameter : units[unit]) by_dtype[parameter->dtype].push_back(parameter);
    for (const auto& [dtype, parameters] : by_dtype) {
      const int64_t added = elements(parameters);
      if (!open.contains(dtype) || groups[open[dtype]].elements + added > bucket) {
        open[dtype] = groups.size();
        groups.push_back({.last_unit = unit, .dtype = dtype});
      }
      OpenGroup& group = groups[open[dtype]];
      bool first = true;
      for (const ParameterShape* parameter : parameters) {
        group.entries.push_back({parameter->name, parameter->sizes, std::exchange(first, false)});
      }
      group.elements += added;
      group.first_unit = unit;
    }
  }
  return groups;
}

bool shards_trainable(const PlanInput& input, int64_t trainable, int64_t frozen) {
  if (input.engine.trainable != Placement::kByPolicy) return input.engine.trainable == Placement::kSharded;
  return input.engine.policy.param_shard && trainable * 4 > frozen;
}

bool shards_frozen(const PlanInput& input) {
  if (input.engine.frozen != Placement::kByPolicy) return input.engine.frozen == Placement::kSharded;
  return input.engine.policy.param_shard;
}

/// Frozen parameters of one unit as a byte buffer, padded as memory::FrozenGroup pads them.
int64_t frozen_buffer(const Parameters& parameters, int64_t size, int ranks) {
  std::vector<memory::FlatEntry> entries;
  for (const ParameterShape* parameter : parameters) {
    entries.push_back({parameter->name, {(parameter->numel() * size + 255) / 256 * 256}});
  }
  return memory::FlatLayout(std::move(entries), ranks).padded_elements();
}

void place_frozen(const PlanInput& input, int ranks, PlacedModel& placed) {
  const int64_t size = size_of(input.engine.frozen_dtype.value_or(input.dtype));
  placed.has_homes = input.device == PlanDevice::kCard && !shards_frozen(input);
  int64_t home = 0;
  for (size_t unit = 1; placed.has_homes && unit + 1 < input.model.units.size(); ++unit) {
    const UnitShape& block = input.model.units[unit];
    if (unit == 1 || !alike(block, input.model.units[unit - 1])) home = home_elements(block) * size;
    placed.frozen_bytes += home;
  }
  const std::vector<Parameters> units = owned(input.model, false);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (units[unit].empty()) continue;
    if (shards_frozen(input)) {
      const int64_t bytes = frozen_buffer(units[unit], size, ranks);
      placed.unit_bytes[unit] += bytes;
      placed.frozen_shard_bytes += bytes / ranks;
      continue;
    }
    for (const ParameterShape* parameter : units[unit]) {
      (is_adapter(*parameter) ? placed.frozen_adapter_bytes : placed.frozen_bytes) +=
          parameter->numel() * size;
    }
  }
}

bool is_tied(const ModelShape& model) {
  std::set<std::string_view> embedding;
  for (const ParameterShape& parameter : model.units.front().parameters) embedding.insert(parameter.name);
  return std::ranges::any_of(model.units.back().parameters, [&](const ParameterShape& parameter) {
    return embedding.contains(parameter.name);
  });
}

}  // namespace

bool PlacedModel::gathers() const {
  return std::ranges::any_of(unit_bytes, [](int64_t bytes) { return bytes > 0; });
}

int64_t PlacedModel::largest_block() const {
  return *std::max_element(unit_bytes.begin() + 1, unit_bytes.end() - 1);
}

PlacedModel place_model(const PlanInput& input, int ranks) {
  PlacedModel placed;
  placed.unit_bytes.resize(input.model.units.size());
  placed.tied = is_tied(input.model);
  const std::vector<Parameters> units = owned(input.model, true);
  const int64_t trainable = input.model.trainable_elements();
  const bool sharded = shards_trainable(input, trainable, input.model.elements() - trainable);
  for (OpenGroup& open : open_groups(units, sharded ? 1 : input.engine.bucket_elements)) {
    const at::ScalarType dtype = input.engine.compute_dtype.value_or(open.dtype);
    const memory::FlatLayout layout(std::move(open.entries), ranks);
    placed.groups.push_back({.elements = layout.padded_elements(),
                             .used = layout.used_elements(),
                             .size = size_of(dtype),
                             .source_size = size_of(open.dtype),
                             .first_unit = open.first_unit,
                             .last_unit = open.last_unit,
                             .sharded = sharded});
    if (sharded) placed.unit_bytes[open.first_unit] += placed.groups.back().bytes();
  }
  // A tied embedding gets its first gradient from the head.
  if (placed.tied && !units.front().empty()) placed.groups.back().last_unit = units.size() - 1;
  place_frozen(input, ranks, placed);
  return placed;
}

PlacedModel place_reference(const PlanInput& input, int ranks) {
  PlanInput frozen = input;
  for (UnitShape& unit : frozen.model.units) {
    std::erase_if(unit.parameters, is_adapter);
    for (ParameterShape& parameter : unit.parameters) parameter.trainable = false;
  }
  return place_model(frozen, ranks);
}

bool shares_update(const GroupSize& group, const PlanInput& input) {
  const parallel::ShardedModelOptions& engine = input.engine;
  const memory::StateResidency& where = engine.policy.residency;
  const double first = input.device == PlanDevice::kCard ? parallel::HostUpdate::kFirstDeviceShare : 0.0;
  return engine.host_device_share.value_or(first) > 0 && where.optimizer == memory::Residency::kHost &&
         where.gradients == memory::Residency::kDevice &&
         (!group.sharded || where.parameters == memory::Residency::kDevice);
}

}  // namespace apus::train
