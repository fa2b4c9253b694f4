#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "apus/base/api.h"
#include "apus/ops/rope_scaling.h"

namespace apus::models {

/// The rotary part of a config.json.
struct APUS_API RopeConfig {
  double theta = 10000.0;
  ops::RopeScaling scaling = {};
};

/// What of a model decides whether a rule fits it.
struct APUS_API RopeModel {
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  /// The config's name in messages.
  std::string source = "config.json";
};

/// Reads rope_theta with rope_scaling (transformers 4) or rope_parameters (5); the type's key is rope_type or
/// type. What a rule leaves out is filled in as transformers fills it: a missing
/// original_max_position_embeddings is the config's own key of that name, else max_position_embeddings; a
/// missing factor of yarn or longrope the ratio of the two.
/// Throws:  DataError naming the key if it is missing or of a wrong type; ConfigError naming the key for a
///          value that gives no finite frequencies, or if both spellings are there and differ; NotSupported
///          for an unknown type (listing the known), a partial_rotary_factor, mrope, or rules by layer type.
APUS_API RopeConfig parse_rope(const nlohmann::json& config, const RopeModel& model);

/// The rule as the object of "rope_scaling"; null for the default. parse_rope reads it back.
APUS_API nlohmann::ordered_json rope_json(const ops::RopeScaling& scaling);

/// What the flags --rope_scaling and --max_model_len say.
struct APUS_API RopeOverride {
  /// "linear", "dynamic", "yarn" or "default", or a JSON object as in config.json; unset = the config's.
  std::optional<std::string> rope_scaling = {};
  /// The longest sequence that the model is to read; unset = what the rule reaches.
  std::optional<int64_t> max_model_len = {};
};

/// A config.json with the flags worked in.
struct APUS_API OverriddenConfig {
  /// The text as it was, unless rope_scaling is set.
  std::string config_json;
  /// The longest sequence: max_model_len, else what a set rule reaches, else the config's
  /// max_position_embeddings; unset if it has none.
  std::optional<int64_t> max_length = {};
};

/// Works --rope_scaling and --max_model_len into a config.json, in the config's own spelling.
/// Maths:   where the rule says no factor: ceil(max_model_len / original), at least 1, as ms-swift has it.
///          original = the rule's original_max_position_embeddings, else that of the config's own rule, else
///          max_position_embeddings (over the factor of a linear rule).
/// max_position_embeddings becomes the longest sequence; under dynamic it stays, since that rule starts
/// there. max_model_len alone changes no frequency: it may be at most what the config's own rule reaches.
/// Throws:  ConfigError naming the flag, what came and what to give; DataError if config_json or the flag's
/// JSON is
///          broken; NotSupported for a type that is none.
APUS_API OverriddenConfig override_rope(const std::string& config_json, const RopeOverride& flags,
                                        const std::string& source = "config.json");

}  // namespace apus::models
