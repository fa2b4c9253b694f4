#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/model_spec.h"
#include "apus/nn/causal_lm.h"

namespace apus::models {

/// How a model folder is loaded.
struct APUS_API LoadOptions {
  /// Of all parameters; unset = the config's own, else that of the stored tensors.
  std::optional<at::ScalarType> dtype;
};

/// A model with what its folder said about it.
struct APUS_API PretrainedModel {
  std::unique_ptr<nn::CausalLm> model;
  ModelSpec spec;            ///< the registry entry it was built by
  std::string config_json;   ///< the text of config.json, as it was
  at::ScalarType dtype = at::kFloat;
  std::filesystem::path folder;

  /// See ModelSpec::token_flops.
  TokenFlops token_flops(int64_t length) const;
};

/// Loads a folder in Hugging Face layout: config.json and safetensors, in one file or in shards.
/// Parameters come frozen (nn::make_trainable trains them all).
/// Memory:  stored in the wanted dtype, a tensor is a private mapping of the file: no anonymous memory, pages
///          shared between processes, and kept as long as the tensor; otherwise one converted copy of it.
/// Throws:  ConfigError if the folder or config.json is missing; DataError if config.json is broken;
///          NotSupported for an unknown model_type (listing the known), a feature of the config or a quantised
///          checkpoint; CheckpointError naming file, tensor and both shapes if a weight file or tensor is
///          missing, broken, ill-shaped or not the model's, or if there are only pickled weights.
APUS_API PretrainedModel load_pretrained(const std::filesystem::path& folder, const ModelRegistry& registry,
                                         const LoadOptions& options = {});

/// Fills parameters from the safetensors of a folder, each in the dtype and shape that it has: for models that
/// are not in the registry. Memory and errors as load_pretrained; `redundant` are patterns of tensors that the
/// folder may hold beyond the parameters.
struct APUS_API LoadParametersOptions {
  std::function<std::string(const std::string& parameter)> checkpoint_name;  ///< unset = the parameter's name
  std::vector<std::string> redundant;                                         ///< see WeightMap::redundant
};

/// See LoadParametersOptions.
APUS_API void load_parameters(const std::vector<nn::NamedParameter>& parameters,
                              const std::filesystem::path& folder, const LoadParametersOptions& options = {});

/// How a model folder is written.
struct APUS_API SaveOptions {
  int64_t max_shard_bytes = 5'000'000'000;  ///< more is cut into shards of at most this (or one tensor)
  std::function<std::string(const std::string& parameter)> checkpoint_name;  ///< unset = the parameter's name
};

/// Writes config.json and the parameters, as they are, in Hugging Face layout: model.safetensors, or shards and
/// model.safetensors.index.json. Creates the folder; weights of an earlier save in it are replaced.
/// Memory:  one tensor, where it is not contiguous in host memory.
/// Throws:  ConfigError without parameters or if max_shard_bytes < 1; DataError if config_json is no JSON;
///          FileError from the disk.
APUS_API void save_pretrained(const std::filesystem::path& folder, const std::string& config_json,
                              const std::vector<nn::NamedParameter>& parameters, const SaveOptions& options = {});

}  // namespace apus::models
