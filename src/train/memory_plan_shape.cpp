#include "apus/train/memory_plan_shape.h"

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/models/model_spec.h"
#include "apus/nn/causal_lm.h"

namespace apus::train {
namespace {

constexpr std::string_view kWeight = ".weight";

std::vector<ParameterShape> shapes_of(const std::vector<nn::NamedParameter>& parameters) {
  std::vector<ParameterShape> shapes;
  for (const nn::NamedParameter& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    shapes.push_back({.name = parameter.name,
                      .sizes = tensor.sizes().vec(),
                      .dtype = tensor.scalar_type(),
                      .trainable = tensor.requires_grad()});
  }
  return shapes;
}

int64_t count(const ModelShape& model, bool trainable_only) {
  std::set<std::string_view> seen;
  int64_t sum = 0;
  for (const UnitShape& unit : model.units) {
    for (const ParameterShape& parameter : unit.parameters) {
      if (!seen.insert(parameter.name).second || (trainable_only && !parameter.trainable)) continue;
      sum += parameter.numel();
    }
  }
  return sum;
}

/// The path of the projection that a weight belongs to; none if it is no matrix.
std::optional<std::string> projection_of(const ParameterShape& parameter) {
  const bool is_adapter = parameter.name.find(".lora_") != std::string::npos;
  if (parameter.sizes.size() != 2 || is_adapter || !parameter.name.ends_with(kWeight)) return std::nullopt;
  return parameter.name.substr(0, parameter.name.size() - kWeight.size());
}

void add_to_unit(UnitShape& unit, const AdapterShape& adapter) {
  std::vector<ParameterShape> with_adapter;
  for (ParameterShape& parameter : unit.parameters) {
    const std::optional<std::string> path = projection_of(parameter);
    const int64_t rank = path ? adapter.rank(*path) : 0;
    const std::vector<int64_t> sizes = parameter.sizes;
    with_adapter.push_back(std::move(parameter));
    if (rank == 0) continue;
    const auto add = [&](const char* matrix, std::vector<int64_t> shape) {
      with_adapter.push_back({.name = *path + "." + matrix + "." + adapter.name + ".weight",
                              .sizes = std::move(shape),
                              .dtype = adapter.dtype,
                              .trainable = adapter.trainable});
    };
    add("lora_A", {rank, sizes[1]});
    add("lora_B", {sizes[0], rank});
  }
  unit.parameters = std::move(with_adapter);
}

}  // namespace

int64_t ParameterShape::numel() const {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

int64_t ModelShape::elements() const {
  return count(*this, false);
}

int64_t ModelShape::trainable_elements() const {
  return count(*this, true);
}

ModelShape shape_of(nn::CausalLm& model) {
  ModelShape shape{.vocab_size = model.vocab_size(), .hidden_size = model.hidden_size()};
  shape.units.push_back({"embedding", shapes_of(model.embed_parameters())});
  const auto blocks = static_cast<int64_t>(model.blocks().size());
  for (int64_t index = 0; index < blocks; ++index) {
    shape.units.push_back({detail::concat("block ", index), shapes_of(model.block_parameters(index))});
  }
  shape.units.push_back({"head", shapes_of(model.head_parameters())});
  return shape;
}

ModelShape shape_of_config(const nlohmann::json& config, const models::ModelRegistry& registry,
                           at::ScalarType dtype) {
  const JsonView view(config, "config.json");
  const auto type = view.require<std::string>("model_type");
  const auto model = registry.find(type).build(config, {.dtype = dtype});
  ModelShape shape = shape_of(*model);
  shape.name = type;
  shape.attention_heads = view.get_or<int64_t>("num_attention_heads", 0);
  return shape;
}

void set_trainable(ModelShape& model, const std::function<bool(const std::string& name)>& trains) {
  for (UnitShape& unit : model.units) {
    for (ParameterShape& parameter : unit.parameters) parameter.trainable = trains(parameter.name);
  }
}

void add_adapter(ModelShape& model, const AdapterShape& adapter) {
  const int64_t before = model.elements();
  for (size_t unit = 1; unit + 1 < model.units.size(); ++unit) add_to_unit(model.units[unit], adapter);
  APUS_CHECK(model.elements() > before, ConfigError, "adapter '", adapter.name,
             "' targets no projection of the model's ", model.blocks(),
             " blocks; change --target_modules or --target_regex");
}

}  // namespace apus::train
