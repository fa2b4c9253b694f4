#include "apus/models/qwen2.h"

namespace apus::models {

Qwen2Config parse_qwen2_config(const nlohmann::json& config, const std::string& source) {
  return parse_decoder_config(config, source);
}

std::string qwen2_config_json(const Qwen2Config& config, at::ScalarType dtype) {
  return decoder_config_json(config, dtype);
}

ModelSpec qwen2_spec() {
  return decoder_spec("qwen2");
}

}  // namespace apus::models
