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

/// When stored tensors take the wanted dtype.
enum class Conversion {
  kNow,    ///< while loading: a converted tensor is a copy, whole
  kLater,  ///< not at all: every parameter is a mapping in its stored dtype, for a sharded engine that rounds
           ///< the slices which it keeps (ShardedModelOptions::compute_dtype and frozen_dtype) and reads no
           ///< more
};

/// How a model folder is loaded.
struct APUS_API LoadOptions {
  /// Of all parameters; unset = the config's own, else that of the stored tensors.
  std::optional<at::ScalarType> dtype = {};
  Conversion conversion = Conversion::kNow;
  /// --rope_scaling: another rotary rule than the config's, see RopeOverride.
  std::optional<std::string> rope_scaling = {};
  /// --max_model_len: the longest sequence that the model will see, see RopeOverride.
  std::optional<int64_t> max_model_len = {};
  /// --rope_batch_length: rotary rules that depend on a length take that of the padded batch, as transformers
  /// does, instead of each sequence's own (RopeLength::kBatch).
  bool rope_batch_length = false;
};

/// A model with what its folder said about it.
struct APUS_API PretrainedModel {
  std::unique_ptr<nn::CausalLm> model;
  /// The registry entry that built it.
  ModelSpec spec;
  /// What save_pretrained takes: the text of config.json as it was, with LoadOptions::rope_scaling worked in.
  std::string config_json;
  /// The longest sequence that the model was made for, or LoadOptions::max_model_len; unset if the config
  /// does not say.
  std::optional<int64_t> max_length = {};
  /// That the parameters are to have; under Conversion::kLater they may still have another.
  at::ScalarType dtype = at::kFloat;
  /// Where it came from.
  std::filesystem::path folder;

  /// See ModelSpec::token_flops.
  TokenFlops token_flops(int64_t length) const;
};

/// Loads a folder in Hugging Face layout: config.json and safetensors, in one file or in shards.
/// Parameters come frozen (nn::make_trainable trains them all).
/// Memory:  stored in the wanted dtype, a tensor is a private mapping of the file: no anonymous memory, pages
///          shared between processes, and kept as long as the tensor; otherwise one converted copy of it.
/// Throws:  ConfigError if the folder or config.json is missing, and as override_rope; DataError if
///          config.json is broken; NotSupported for an unknown model_type (listing the known), a feature of
///          the config or a quantised checkpoint; CheckpointError naming file, tensor and both shapes if a
///          weight file or tensor is missing, broken, ill-shaped or not the model's, or if there are only
///          pickled weights.
APUS_API PretrainedModel load_pretrained(const std::filesystem::path& folder, const ModelRegistry& registry,
                                         const LoadOptions& options = {});

/// How a folder's tensors correspond to the parameters of a model that is in no registry.
struct APUS_API LoadParametersOptions {
  /// A parameter's name in the folder; unset = its own name.
  std::function<std::string(const std::string& parameter)> checkpoint_name = {};
  /// Patterns of tensors that the folder may hold beyond the parameters, see WeightMap::redundant.
  std::vector<std::string> redundant = {};
  Conversion conversion = Conversion::kNow;
};

/// Fills parameters from the safetensors of a folder, each in the dtype and shape that it has, by giving it
/// other storage (set_data); requires_grad stays. Memory and errors as load_pretrained.
APUS_API void load_parameters(const std::vector<nn::NamedParameter>& parameters,
                              const std::filesystem::path& folder, const LoadParametersOptions& options = {});

/// How a model folder is written.
struct APUS_API SaveOptions {
  /// More is cut into shards of at most this, or of one tensor.
  int64_t max_shard_bytes = 5'000'000'000;
  /// A parameter's name in the files; unset = its own name.
  std::function<std::string(const std::string& parameter)> checkpoint_name = {};
};

/// Writes config.json and the parameters, as they are, in Hugging Face layout: model.safetensors, or shards
/// and model.safetensors.index.json. Creates the folder; weights of an earlier save in it are replaced.
/// Memory:  one tensor, where it is not contiguous in host memory.
/// Throws:  ConfigError without parameters or if max_shard_bytes < 1; DataError if config_json is no JSON;
///          FileError from the disk.
APUS_API void save_pretrained(const std::filesystem::path& folder, const std::string& config_json,
                              const std::vector<nn::NamedParameter>& parameters,
                              const SaveOptions& options = {});

}  // namespace apus::models
