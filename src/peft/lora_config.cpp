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
    KnownKey{"alpha_pattern", "{}"},
    KnownKey{"arrow_config", "null"},
    KnownKey{"auto_mapping", "null", KeyUse::kKept},
    KnownKey{"base_model_name_or_path", "null", KeyUse::kField},
    KnownKey{"bias", "\"none\""},
    KnownKey{"corda_config", "null"},
    KnownKey{"ensure_weight_tying", "false"},
    KnownKey{"eva_config", "null"},
    KnownKey{"exclude_modules", "null"},
    KnownKey{"fan_in_fan_out", "false"},
    KnownKey{"inference_mode", "true", KeyUse::kKept},
    KnownKey{"init_lora_weights", "true", KeyUse::kKept},
    KnownKey{"kasa_config", "null"},
    KnownKey{"layer_replication", "null"},
    KnownKey{"layers_pattern", "null"},
    KnownKey{"layers_to_transform", "null"},
    KnownKey{"loftq_config", "{}"},
    KnownKey{"lora_alpha", "null", KeyUse::kField},
    KnownKey{"lora_bias", "false"},
    KnownKey{"lora_dropout", "null", KeyUse::kField},
    KnownKey{"lora_ga_config", "null"},
    KnownKey{"megatron_config", "null"},
    KnownKey{"megatron_core", "\"megatron.core\"", KeyUse::kKept},
    KnownKey{"modules_to_save", "null"},
    KnownKey{"monteclora_config", "null"},
    KnownKey{"peft_type", "\"LORA\"", KeyUse::kField},
    KnownKey{"peft_version", "\"0.21.2\"", KeyUse::kKept},
    KnownKey{"qalora_group_size", "16", KeyUse::kKept},
    KnownKey{"r", "null", KeyUse::kField},
    KnownKey{"rank_pattern", "{}"},
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
  parsed.config.r = reader.positive_integer("r");
  parsed.config.lora_alpha = reader.number("lora_alpha");
  parsed.config.lora_dropout = object.contains("lora_dropout") ? reader.number("lora_dropout") : 0.0;
  if (parsed.config.lora_dropout < 0 || parsed.config.lora_dropout >= 1)
    reader.fail_value("lora_dropout", "at least 0 and below 1");
  parsed.config.use_rslora = reader.flag("use_rslora");
  parsed.config.targets = read_targets(reader);
  parsed.config.base_model_name_or_path = reader.text_or_empty("base_model_name_or_path");
  return parsed;
}

std::string write_lora_config(const LoraConfig& config) {
  json object = json::object();  // a std::map: keys come out sorted
  for (const KnownKey& key : kKnownKeys) object[std::string(key.name)] = json::parse(key.off);
  for (const auto& [name, value] : config.kept) object[name] = json::parse(value);
  object["inference_mode"] = true;  // as PEFT saves every adapter
  object["r"] = config.r;
  // PEFT's alpha is an integer unless it cannot be.
  if (std::trunc(config.lora_alpha) == config.lora_alpha && std::abs(config.lora_alpha) < 1e15)
    object["lora_alpha"] = static_cast<int64_t>(config.lora_alpha);
  else
    object["lora_alpha"] = config.lora_alpha;
  object["lora_dropout"] = config.lora_dropout;
  object["use_rslora"] = config.use_rslora;
  if (config.targets.all_linear)
    object["target_modules"] = kAllLinear;
  else if (!config.targets.regex.empty())
    object["target_modules"] = config.targets.regex;
  else
    object["target_modules"] = config.targets.names;
  if (!config.base_model_name_or_path.empty())
    object["base_model_name_or_path"] = config.base_model_name_or_path;
  return dump_json(object, {.indent = 2, .ascii = true}) + "\n";
}

void require_no_dropout(const LoraConfig& config) {
  APUS_CHECK(config.lora_dropout == 0, NotSupported, "lora_dropout = ", config.lora_dropout,
             " is not supported yet in training with dropout; pass --lora_dropout 0");
}

}  // namespace apus::peft
