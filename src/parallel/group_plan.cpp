#include "apus/parallel/group_plan.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

using Parameters = std::vector<memory::GroupParameter>;

/// The parameters of each unit that are trainable, or that are not; each tensor in the first unit that uses
/// it. Matrices come before vectors: those that read one input (q, k, v; gate, up) then lie one behind
/// another in a flat buffer, as do their biases, and are one product.
std::vector<Parameters> owned_parameters(const ModelUnits& model, bool trainable) {
  std::unordered_set<const void*> seen;
  std::vector<Parameters> result;
  for (size_t index = 0; index < model.units.size(); ++index) {
    Parameters owned;
    for (const nn::NamedParameter& parameter : model.units[index].parameters) {
      if (parameter.tensor.requires_grad() != trainable) continue;
      if (!seen.insert(parameter.tensor.unsafeGetTensorImpl()).second) continue;
      owned.push_back({parameter.name, parameter.tensor, static_cast<int>(index)});
    }
    std::ranges::stable_partition(owned, [](const auto& parameter) { return parameter.tensor.dim() > 1; });
    result.push_back(std::move(owned));
  }
  return result;
}

/// One unit's parameters by dtype, so that a group never mixes them.
std::map<at::ScalarType, Parameters> by_dtype(Parameters parameters) {
  std::map<at::ScalarType, Parameters> result;
  for (auto& parameter : parameters) result[parameter.tensor.scalar_type()].push_back(std::move(parameter));
  return result;
}

int64_t elements(const Parameters& parameters) {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.tensor.numel();
  return sum;
}

}  // namespace

ModelUnits model_units(nn::CausalLm& model) {
  ModelUnits result;
  result.units.push_back({"embedding", model.embed_parameters(), SlotKind::kOwn});
  const int64_t blocks = static_cast<int64_t>(model.blocks().size());
  for (int64_t index = 0; index < blocks; ++index) {
    result.units.push_back({detail::concat("block ", index), model.block_parameters(index)});
  }
  result.units.push_back({"head", model.head_parameters(), SlotKind::kOwn});
  return result;
}

std::vector<Parameters> plan_groups(const ModelUnits& model, int64_t bucket_elements) {
  APUS_CHECK(bucket_elements >= 1, ConfigError, "bucket_elements must be at least 1, got ", bucket_elements);
  std::vector<Parameters> units = owned_parameters(model, /*trainable=*/true);
  std::vector<Parameters> groups;
  std::map<at::ScalarType, size_t> open;  // the group that still takes units, by dtype
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    for (auto& [dtype, parameters] : by_dtype(std::move(*unit))) {
      const auto found = open.find(dtype);
      const bool fits =
          found != open.end() && elements(groups[found->second]) + elements(parameters) <= bucket_elements;
      if (!fits) {
        open[dtype] = groups.size();
        groups.emplace_back();
      }
      Parameters& group = groups[open[dtype]];
      group.insert(group.end(), parameters.begin(), parameters.end());
    }
  }
  return groups;
}

std::vector<Parameters> frozen_parameters(const ModelUnits& model) {
  return owned_parameters(model, /*trainable=*/false);
}

}  // namespace apus::parallel
