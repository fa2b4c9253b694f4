#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apus/base/api.h"
#include "apus/models/decoder.h"

namespace apus::models {

/// Qwen2 and Qwen2.5, dense: the decoder whose config's defaults are theirs.
using Qwen2 = Decoder;
/// See DecoderConfig.
using Qwen2Config = DecoderConfig;

/// As parse_decoder_config.
APUS_API Qwen2Config parse_qwen2_config(const nlohmann::json& config,
                                        const std::string& source = "config.json");

/// As decoder_config_json.
APUS_API std::string qwen2_config_json(const Qwen2Config& config, at::ScalarType dtype);

/// The registry entry "qwen2".
APUS_API ModelSpec qwen2_spec();

}  // namespace apus::models
