#include "apus/parallel/group_plan.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

using Parameters = std::vector<memory::GroupParameter>;

/// The trainable parameters of each unit, each tensor in the first unit that uses it.
std::vector<Parameters> owned_parameters(const ModelUnits& model) {
  std::unordered_set<const void*> seen;
  std::vector<Parameters> result;
  for (const auto& unit : model.units) {
    Parameters owned;
    for (const nn::NamedParameter& parameter : unit) {
      if (!parameter.tensor.requires_grad()) continue;
      if (!seen.insert(parameter.tensor.unsafeGetTensorImpl()).second) continue;
      owned.push_back({parameter.name, parameter.tensor});
    }
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
  result.units.push_back(model.embed_parameters());
  const int64_t blocks = static_cast<int64_t>(model.blocks().size());
  for (int64_t index = 0; index < blocks; ++index) result.units.push_back(model.block_parameters(index));
  result.units.push_back(model.head_parameters());
  return result;
}

std::vector<Parameters> plan_groups(const ModelUnits& model, int64_t bucket_elements) {
  APUS_CHECK(bucket_elements >= 1, ConfigError, "bucket_elements must be at least 1, got ", bucket_elements);
  std::vector<Parameters> units = owned_parameters(model);
  std::vector<Parameters> groups;
  std::map<at::ScalarType, size_t> open;  // the group that still takes units, by dtype
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    for (auto& [dtype, parameters] : by_dtype(std::move(*unit))) {
      const auto found = open.find(dtype);
      const bool fits = found != open.end() &&
                        elements(groups[found->second]) + elements(parameters) <= bucket_elements;
      if (!fits) {
        open[dtype] = groups.size();
        groups.emplace_back();
      }
      Parameters& group = groups[open[dtype]];
      group.insert(group.end(), parameters.begin(), parameters.end());
    }
  }
  APUS_CHECK(!groups.empty(), ConfigError,
             "the model has no trainable parameter; add an adapter or set requires_grad before sharding");
  return groups;
}

}  // namespace apus::parallel
