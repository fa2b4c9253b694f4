#include "apus/models/model_spec.h"

#include "apus/base/dtype.h"
#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"
#include "apus/models/decoder_config.h"
#include "apus/models/tensor_dtype.h"

namespace apus::models {

void ModelRegistry::add(ModelSpec spec) {
  APUS_CHECK(!spec.model_type.empty() && !has(spec.model_type), ConfigError, "model_type '", spec.model_type,
             "' is empty or registered already");
  APUS_CHECK(spec.build && spec.token_flops, ConfigError, "model_type '", spec.model_type,
             "': build and token_flops must be set");
  std::string key = spec.model_type;
  specs_.emplace(std::move(key), std::move(spec));
}

const ModelSpec& ModelRegistry::find(const std::string& model_type) const {
  const auto found = specs_.find(model_type);
  if (found != specs_.end()) return found->second;
  const std::vector<std::string> known = model_types();
  throw NotSupported("model_type '" + model_type + "' is not supported" + did_you_mean(model_type, known) +
                     "; supported: " + join_words(known));
}

std::vector<std::string> ModelRegistry::model_types() const {
  std::vector<std::string> names;
  for (const auto& [name, spec] : specs_) names.push_back(name);
  return names;
}

void register_builtin_models(ModelRegistry& registry) {
  for (const std::string& model_type : decoder_model_types()) registry.add(decoder_spec(model_type));
}

std::optional<at::ScalarType> config_dtype(const nlohmann::json& config, const std::string& source) {
  const JsonView view(config, source);
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto text = view.find<std::string>(key);
    if (!text) continue;
    const at::ScalarType type = scalar_type(parse_dtype(source + ": " + key, *text));
    APUS_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf, NotSupported, source, ": ",
               key, " '", *text, "' is not supported; supported: float32, bfloat16, float16");
    return type;
  }
  return std::nullopt;
}

}  // namespace apus::models
