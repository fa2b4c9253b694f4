#include "apus/peft/lora_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"

namespace apus::peft {
namespace {

using nlohmann::json;

constexpr std::string_view kAllLinear = "all-linear";
// In the order of LoraBias.
constexpr std::array<std::string_view, 3> kBiasNames = {"none", "all", "lora_only"};

/// What is done with a key of PEFT's adapter_config.json.
enum class KeyUse {
  kField,    // a field of LoraConfig
  kKept,     // changes nothing here; written back
  kRefused,  // a feature of its own: only its "off" value is taken
};

struct KnownKey {
  std::string_view name;
  std::string_view off;  // JSON
  KeyUse use = KeyUse::kRefused;
};

// All that PEFT 0.21 writes, with the values of an adapter that uses none of it.
constexpr std::array kKnownKeys = {
    KnownKey{"alora_invocation_tokens", "null"},
    KnownKey{"alpha_pattern", "{}", KeyUse::kField},
    KnownKey{"arrow_config", "null"},
    KnownKey{"auto_mapping", "null", KeyUse::kKept},
    KnownKey{"base_model_name_or_path", "null", KeyUse::kField},
    KnownKey{"bias", "\"none\"", KeyUse::kField},
    KnownKey{"corda_config", "null"},
    KnownKey{"ensure_weight_tying", "false"},
    KnownKey{"eva_config", "null"},
    KnownKey{"exclude_modules", "null", KeyUse::kField},
    KnownKey{"fan_in_fan_out", "false"},
    KnownKey{"inference_mode", "true", KeyUse::kKept},
    KnownKey{"init_lora_weights", "true", KeyUse::kKept},
    KnownKey{"kasa_config", "null"},
    KnownKey{"layer_replication", "null"},
    KnownKey{"layers_pattern", "null", KeyUse::kField},
    KnownKey{"layers_to_transform", "null", KeyUse::kField},
    KnownKey{"loftq_config", "{}"},
    KnownKey{"lora_alpha", "null", KeyUse::kField},
    KnownKey{"lora_bias", "false"},
    KnownKey{"lora_dropout", "null", KeyUse::kField},
    KnownKey{"lora_ga_config", "null"},
    KnownKey{"megatron_config", "null"},
    KnownKey{"megatron_core", "\"megatron.core\"", KeyUse::kKept},
    KnownKey{"modules_to_save", "null", KeyUse::kField},
    KnownKey{"monteclora_config", "null"},
    KnownKey{"peft_type", "\"LORA\"", KeyUse::kField},
    KnownKey{"peft_version", "\"0.21.2\"", KeyUse::kKept},
    KnownKey{"qalora_group_size", "16", KeyUse::kKept},
    KnownKey{"r", "null", KeyUse::kField},
    KnownKey{"rank_pattern", "{}", KeyUse::kField},
    KnownKey{"revision", "null", KeyUse::kKept},
    KnownKey{"target_modules", "null", KeyUse::kField},
    KnownKey{"target_parameters", "null"},
    KnownKey{"task_type", "\"CAUSAL_LM\"", KeyUse::kKept},
    KnownKey{"trainable_token_indices", "null"},
    KnownKey{"use_bdlora", "null"},
    KnownKey{"use_dora", "false"},
    KnownKey{"use_qalora", "false"},
    KnownKey{"use_rslora", "false", KeyUse::kField},
    KnownKey{"velora_config", "null"},
};

const KnownKey* find_key(std::string_view name) {
  const auto found = std::find_if(kKnownKeys.begin(), kKnownKeys.end(),
                                  [&](const KnownKey& key) { return key.name == name; });
  return found == kKnownKeys.end() ? nullptr : &*found;
}

bool is_off(const json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

bool is_all_linear(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word == kAllLinear;
}

/// Reads one file's object; every message names the file and the key.
class ConfigReader {
 public:
  ConfigReader(const json& object, const std::string& file) : object_(object), file_(file) {}

  [[noreturn]] void fail(const std::string& reason) const { throw CheckpointError(file_, "", reason); }

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    throw NotSupported(file_ + ": " + key + " = " + dump_json(object_.at(key)) + " is not supported yet" +
                       why);
  }

  const json& require(const std::string& key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) this->fail("key '" + key + "' is missing");
    return *found;
  }

  [[noreturn]] void fail_value(const std::string& key, const std::string& expected) const {
    this->fail(key + " must be " + expected + ", got " + dump_json(object_.at(key)));
  }

  int64_t positive_integer(const std::string& key) const {
    const json& value = this->require(key);
    const bool fits =
        value.is_number_unsigned() && value.get<uint64_t>() >= 1 && value.get<uint64_t>() < 1u << 31;
    if (!fits) this->fail_value(key, "an integer of at least 1");
    return value.get<int64_t>();
  }

  double number(const std::string& key) const {
    const json& value = this->require(key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) this->fail_value(key, "a number");
    return value.get<double>();
  }

  std::string text_or_empty(const std::string& key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return "";
    if (!found->is_string()) this->fail_value(key, "a string");
    return found->get<std::string>();
  }

  /// The value, or null where the key is absent or off.
  const json* given(const std::string& key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || is_off(*found)) return nullptr;
    return &*found;
  }

  /// A string or a list of strings, as a list; none of them empty.
  std::vector<std::string> names(const std::string& key) const {
    const json* value = this->given(key);
    if (!value) return {};
    const json list = value->is_string() ? json::array({*value}) : *value;
    const bool fits = list.is_array() && std::all_of(list.begin(), list.end(), [](const json& name) {
                        return name.is_string() && !name.get_ref<const std::string&>().empty();
                      });
    if (!fits) this->fail_value(key, "a list of names");
    return list.get<std::vector<std::string>>();
  }

  bool flag(const std::string& key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return false;
    if (!found->is_boolean()) this->fail_value(key, "true or false");
    return found->get<bool>();
  }

 private:
  const json& object_;
  const std::string& file_;
};

LoraTargets read_targets(const ConfigReader& reader) {
  const json& value = reader.require("target_modules");
  LoraTargets targets;
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    targets.all_linear = is_all_linear(text);
    if (!targets.all_linear) targets.regex = text;
    if (text.empty()) reader.fail("target_modules is empty");
    return targets;
  }
  const bool is_list =
      value.is_array() && !value.empty() &&
      std::all_of(value.begin(), value.end(), [](const json& name) { return name.is_string(); });
  if (!is_list) reader.fail_value("target_modules", "a list of module names or a regular expression");
  return LoraTargets::from_names(value.get<std::vector<std::string>>());
}

bool is_index(const json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() < 1u << 31;
}

LoraScope read_scope(const ConfigReader& reader) {
  LoraScope scope;
  if (const json* excluded = reader.given("exclude_modules"); excluded && excluded->is_string())
    scope.exclude_regex = excluded->get<std::string>();
  else
    scope.exclude_names = reader.names("exclude_modules");
  if (const json* layers = reader.given("layers_to_transform")) {
    const json list = layers->is_array() ? *layers : json::array({*layers});
    if (!std::all_of(list.begin(), list.end(), is_index))
      reader.fail_value("layers_to_transform", "an index of a layer or a list of them");
    scope.layers = list.get<std::vector<int64_t>>();
  }
  if (const json* pattern = reader.given("layers_pattern"); pattern && *pattern != "")
    scope.layers_pattern = reader.names("layers_pattern");
  return scope;
}

std::map<std::string, int64_t> read_rank_pattern(const ConfigReader& reader) {
  const json* object = reader.given("rank_pattern");
  if (!object) return {};
  const bool fits = object->is_object() && std::all_of(object->begin(), object->end(), [](const json& rank) {
                      return is_index(rank) && rank.get<int64_t>() >= 1;
                    });
  if (!fits) reader.fail_value("rank_pattern", "an object of ranks of at least 1");
  return object->get<std::map<std::string, int64_t>>();
}

std::map<std::string, double> read_alpha_pattern(const ConfigReader& reader) {
  const json* object = reader.given("alpha_pattern");
  if (!object) return {};
  const bool fits = object->is_object() && std::all_of(object->begin(), object->end(), [](const json& alpha) {
                      return alpha.is_number() && std::isfinite(alpha.get<double>());
                    });
  if (!fits) reader.fail_value("alpha_pattern", "an object of numbers");
  return object->get<std::map<std::string, double>>();
}

LoraBias read_bias(const ConfigReader& reader) {
  const std::string word = reader.text_or_empty("bias");
  if (word.empty()) return LoraBias::kNone;
  if (std::find(kBiasNames.begin(), kBiasNames.end(), word) == kBiasNames.end())
    reader.fail_value("bias", "none, all or lora_only");
  return parse_lora_bias(word);
}

/// The settings that are fields; keys of other features are gone through already.
void read_fields(const ConfigReader& reader, LoraConfig& config) {
  config.r = reader.positive_integer("r");
  config.lora_alpha = reader.number("lora_alpha");
  config.lora_dropout = reader.given("lora_dropout") ? reader.number("lora_dropout") : 0.0;
  if (config.lora_dropout < 0 || config.lora_dropout >= 1)
    reader.fail_value("lora_dropout", "at least 0 and below 1");
  config.use_rslora = reader.flag("use_rslora");
  config.targets = read_targets(reader);
  config.rank_pattern = read_rank_pattern(reader);
  config.alpha_pattern = read_alpha_pattern(reader);
  config.bias = read_bias(reader);
  config.modules_to_save = reader.names("modules_to_save");
  config.scope = read_scope(reader);
  if (!config.scope.layers.empty() && config.targets.names.empty())
    reader.fail_value("layers_to_transform", "null where target_modules is no list of names");
  config.base_model_name_or_path = reader.text_or_empty("base_model_name_or_path");
}

/// PEFT's alpha is an integer unless it cannot be.
json alpha_json(double alpha) {
  if (std::trunc(alpha) == alpha && std::abs(alpha) < 1e15) return static_cast<int64_t>(alpha);
  return alpha;
}

json targets_json(const LoraTargets& targets) {
  if (targets.all_linear) return kAllLinear;
  if (!targets.regex.empty()) return targets.regex;
  return targets.names;
}

/// Writes what narrows targets and what is trained beside A and B; null where it is off.
void write_extras(const LoraConfig& config, json& object) {
  const auto list = [&](const char* key, const auto& values) {
    if (!values.empty()) object[key] = values;
  };
  list("rank_pattern", config.rank_pattern);
  for (const auto& [pattern, alpha] : config.alpha_pattern)
    object["alpha_pattern"][pattern] = alpha_json(alpha);
  object["bias"] = lora_bias_name(config.bias);
  list("modules_to_save", config.modules_to_save);
  list("exclude_modules", config.scope.exclude_names);
  list("exclude_modules", config.scope.exclude_regex);
  list("layers_to_transform", config.scope.layers);
  list("layers_pattern", config.scope.layers_pattern);
}

/// Initialisations that leave the base as it is: once the tensors are loaded, they make no difference.
void check_initialisation(const ConfigReader& reader, const json& value) {
  static constexpr std::array<std::string_view, 3> kHarmless = {"gaussian", "eva", "orthogonal"};
  if (value.is_boolean() || value.is_null()) return;
  const bool harmless = value.is_string() && std::find(kHarmless.begin(), kHarmless.end(),
                                                       value.get<std::string>()) != kHarmless.end();
  if (!harmless)
    reader.refuse("init_lora_weights",
                  ": it changes the base's weights; convert the adapter with PEFT's "
                  "save_pretrained(path_initial_model_for_weight_conversion=...)");
}

/// Refuses what is switched on and not built; keeps what makes no difference; names what is unknown.
void sort_keys(const json& object, const ConfigReader& reader, ParsedLoraConfig& parsed) {
  std::string unknown;
  for (const auto& [name, value] : object.items()) {
    const KnownKey* key = find_key(name);
    if (!key) {
      if (!is_off(value)) unknown += (unknown.empty() ? "" : ", ") + name;
    } else if (key->use == KeyUse::kKept) {
      parsed.config.kept[name] = dump_json(value);
    } else if (key->use == KeyUse::kRefused && !is_off(value) && dump_json(value) != key->off) {
      reader.refuse(name, "");
    }
  }
  if (!unknown.empty()) parsed.warnings.push_back("keys without effect here: " + unknown);
}

}  // namespace

LoraTargets LoraTargets::from_names(std::vector<std::string> names) {
  LoraTargets targets;
  targets.all_linear = names.size() == 1 && is_all_linear(names.front());
  if (targets.all_linear) return targets;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  targets.names = std::move(names);
  return targets;
}

bool LoraScope::is_open() const {
  return exclude_names.empty() && exclude_regex.empty() && layers.empty() && layers_pattern.empty();
}

std::string_view lora_bias_name(LoraBias bias) {
  return kBiasNames.at(static_cast<std::size_t>(bias));
}

LoraBias parse_lora_bias(std::string_view word) {
  const auto found = std::find(kBiasNames.begin(), kBiasNames.end(), word);
  APUS_CHECK(found != kBiasNames.end(), ConfigError,
             "the bias of an adapter is none, all or lora_only, not '", word, "'");
  return static_cast<LoraBias>(found - kBiasNames.begin());
}

double LoraConfig::scaling() const {
  const auto rank = static_cast<double>(r);
  return lora_alpha / (use_rslora ? std::sqrt(rank) : rank);
}

ParsedLoraConfig parse_lora_config(std::string_view text, const std::string& file) {
  const json object = parse_json(text, file);
  const ConfigReader reader(object, file);
  if (!object.is_object()) reader.fail("expected a JSON object");
  if (const json& type = reader.require("peft_type"); type != "LORA")
    reader.fail("peft_type is " + dump_json(type) + ", only \"LORA\" adapters can be loaded");
  ParsedLoraConfig parsed;
  sort_keys(object, reader, parsed);
  if (const std::string task = reader.text_or_empty("task_type"); !task.empty() && task != "CAUSAL_LM")
    reader.refuse("task_type", ": the adapter is of another kind of model");
  if (object.contains("init_lora_weights")) check_initialisation(reader, object["init_lora_weights"]);
  read_fields(reader, parsed.config);
  return parsed;
}

std::string write_lora_config(const LoraConfig& config) {
  json object = json::object();  // a std::map: keys come out sorted
  for (const KnownKey& key : kKnownKeys) object[std::string(key.name)] = json::parse(key.off);
  for (const auto& [name, value] : config.kept) object[name] = json::parse(value);
  object["inference_mode"] = true;  // as PEFT saves every adapter
  object["r"] = config.r;
  object["lora_alpha"] = alpha_json(config.lora_alpha);
  object["lora_dropout"] = config.lora_dropout;
  object["use_rslora"] = config.use_rslora;
  object["target_modules"] = targets_json(config.targets);
  write_extras(config, object);
  if (!config.base_model_name_or_path.empty())
    object["base_model_name_or_path"] = config.base_model_name_or_path;
  return dump_json(object, {.indent = 2, .ascii = true}) + "\n";
}

}  // namespace apus::peft
