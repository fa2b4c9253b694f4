#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::nn {
class CausalLm;
}
namespace apus::models {
class ModelRegistry;
}

namespace apus::train {

/// A parameter without its values.
struct APUS_API ParameterShape {
  /// Full name; a tied weight stands under one name in two units.
  std::string name;
  std::vector<int64_t> sizes;
  /// That it comes in.
  at::ScalarType dtype = at::kFloat;
  bool trainable = false;

  int64_t numel() const;
};

/// What is gathered, run, recomputed and reduced as one: embedding, a block, the head.
struct APUS_API UnitShape {
  std::string name;
  std::vector<ParameterShape> parameters;
};

/// A model as a plan sees it: names and shapes, no values.
struct APUS_API ModelShape {
  /// For reports.
  std::string name;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  /// Query heads; 0 = unknown: taken to be 128 wide.
  int64_t attention_heads = 0;
  /// Embedding, blocks in order, head.
  std::vector<UnitShape> units;

  int64_t blocks() const { return static_cast<int64_t>(units.size()) - 2; }
  /// Elements, each parameter counted once.
  int64_t elements() const;
  /// Of these, trainable ones.
  int64_t trainable_elements() const;
};

/// The shapes of a model that exists, and what is trainable of it.
APUS_API ModelShape shape_of(nn::CausalLm& model);

/// The shapes of the model that a config.json describes, all frozen. No weights are read.
/// Memory:  the model is built and its parameters are never touched: address space of its size, no pages.
/// Throws:  as ModelRegistry::find and ModelSpec::build.
APUS_API ModelShape shape_of_config(const nlohmann::json& config, const models::ModelRegistry& registry,
                                    at::ScalarType dtype);

/// Full fine-tuning: every parameter for which `trains(name)` holds.
APUS_API void set_trainable(ModelShape& model, const std::function<bool(const std::string& name)>& trains);

/// A LoRA adapter that is to be added to a shape.
struct APUS_API AdapterShape {
  /// In parameter names: "lora_A.<name>.weight".
  std::string name = "default";
  /// The rank of the projection at a path; 0 = it gets none.
  std::function<int64_t(const std::string& path)> rank;
  /// That its values come in.
  at::ScalarType dtype = at::kFloat;
  bool trainable = true;
};

/// Adds A [r, in] and B [out, r] behind each matrix of a block that the adapter targets.
/// Throws:  ConfigError if it targets nothing.
APUS_API void add_adapter(ModelShape& model, const AdapterShape& adapter);

}  // namespace apus::train
