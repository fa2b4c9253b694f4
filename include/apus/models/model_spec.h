#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/rope.h"
#include "apus/nn/causal_lm.h"

namespace apus::models {

/// How a model is built from its config.
struct APUS_API BuildOptions {
  /// Of all parameters.
  at::ScalarType dtype = at::kFloat;
  /// The config's name in messages.
  std::string source = "config.json";
  /// Which length chooses among rotary frequencies that depend on it.
  RopeLength rope_length = RopeLength::kSequence;
  /// The longest sequence that the model will see; unset = the config's max_position_embeddings. A model that
  /// reads shorter ones only (a sliding window) refuses it.
  std::optional<int64_t> max_length = {};
};

/// Floating-point operations that one token costs (a multiply-add counts two), sequences being causal.
struct APUS_API TokenFlops {
  /// Forward products with weights, the vocabulary projection included, the embedding's lookup not.
  double matmul = 0;
  /// Forward score and value products at the mean number of visible tokens, (length + 1) / 2.
  double attention = 0;

  /// The forward pass.
  double forward() const { return matmul + attention; }
  /// Forward and backward with every weight trained: backward is twice the forward. Recompute is not counted.
  double train() const { return 3 * forward(); }
  /// The same with frozen weights (LoRA): no products for weight gradients. Adapters are not counted.
  double train_frozen() const { return 2 * matmul + 3 * attention; }
};

/// How tensors on disk correspond to parameters.
struct APUS_API WeightMap {
  /// A parameter's name in the checkpoint; unset = its own name.
  std::function<std::string(const std::string& parameter)> checkpoint_name = {};
  /// Patterns (as nn::matches_path) of tensors that a checkpoint may hold beyond the parameters and that
  /// carry nothing, e.g. a tied head's copy or old rotary buffers.
  std::function<std::vector<std::string>(const nlohmann::json& config)> redundant = {};
};

/// One kind of model, as a registry entry. Functions that take a config throw DataError if a key is missing
/// or has a wrong type, NotSupported naming a feature that this build lacks.
struct APUS_API ModelSpec {
  /// As in config.json, e.g. "qwen2".
  std::string model_type;
  /// Hugging Face's class, e.g. "Qwen2ForCausalLM".
  std::string architecture;
  /// Builds the model with unset, frozen parameters; their shapes are what a checkpoint must have.
  std::function<std::unique_ptr<nn::CausalLm>(const nlohmann::json& config, const BuildOptions& options)>
      build;
  /// Cost of a token in a sequence of `length` tokens, on the average over its positions.
  std::function<TokenFlops(const nlohmann::json& config, int64_t length)> token_flops;
  /// Unset members mean: names are the same, nothing is redundant.
  WeightMap weights = {};
};

/// The kinds of models that a program knows: an object, filled by explicit calls, so that a program may add
/// its own kinds and two registries never meet.
class APUS_API ModelRegistry final {
 public:
  /// Throws:  ConfigError if the model_type is empty or known already, or build or token_flops is unset.
  void add(ModelSpec spec);

  /// Throws:  NotSupported naming the model_type and listing those that are known.
  const ModelSpec& find(const std::string& model_type) const;

  /// Whether find() would succeed.
  bool has(const std::string& model_type) const { return specs_.contains(model_type); }

  /// Known kinds, sorted.
  std::vector<std::string> model_types() const;

 private:
  std::map<std::string, ModelSpec> specs_;
};

/// Adds every kind that apus itself brings.
APUS_API void register_builtin_models(ModelRegistry& registry);

/// The dtype that a config names ("torch_dtype" of transformers 4, "dtype" of 5).
/// Throws:  NotSupported for one that models do not compute in; DataError if it is no text.
/// Returns nothing if the config does not say.
APUS_API std::optional<at::ScalarType> config_dtype(const nlohmann::json& config, const std::string& source);

}  // namespace apus::models
