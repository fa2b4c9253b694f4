#include "train/deepspeed_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"
#include "train/deepspeed_keys.h"

namespace apus::train {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

struct Preset {
  const char* name;
  const char* text;
};

/// They hold no optimizer, no schedule and no dtype: flags say those.
constexpr std::array kPresets = {
    Preset{"zero0", R"({"zero_optimization": {"stage": 0}})"},
    Preset{"zero1", R"({"zero_optimization": {"stage": 1}})"},
    Preset{"zero2", R"({"zero_optimization": {"stage": 2}})"},
    Preset{"zero2_offload", R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})"},
    Preset{"zero3", R"({"zero_optimization": {"stage": 3}})"},
    Preset{"zero3_offload", R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
                               "offload_param": {"device": "cpu"}}})"},
};

Words preset_names() {
  Words names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

bool is_object_text(const std::string& flag) {
  const size_t first = flag.find_first_not_of(" \t\r\n");
  return first != flag.npos && flag[first] == '{';
}

bool is_file_name(const std::string& flag) {
  std::error_code unreadable;
  return flag.ends_with(".json") || flag.find('/') != flag.npos ||
         std::filesystem::is_regular_file(flag, unreadable);
}

/// A word that is neither a preset nor a file.
[[noreturn]] void refuse_word(const std::string& flag) {
  const Words names = preset_names();
  const bool is_stage =
      flag.starts_with("zero") && flag.size() > 4 && flag.find_first_not_of("0123456789", 4) == flag.npos;
  throw ConfigError(detail::concat("--deepspeed ", flag, ": no such ", is_stage ? "stage" : "preset",
                                   "; one of ", join_words(names), ", or a JSON file",
                                   is_stage ? "" : did_you_mean(flag, names)));
}

json load(const std::string& flag) {
  const auto preset = std::ranges::find(kPresets, flag, &Preset::name);
  if (preset != kPresets.end()) return json::parse(preset->text);
  const bool is_object = is_object_text(flag);
  if (!is_object && !is_file_name(flag)) refuse_word(flag);
  json config;
  try {
    config = is_object ? parse_json_settings(flag, "the object") : load_json_settings(flag);
  } catch (const Error& error) {
    throw ConfigError(detail::concat("--deepspeed: ", error.what()));
  }
  APUS_CHECK(config.is_object(), ConfigError, "--deepspeed ", flag, ": expected a JSON object");
  return config;
}

/// Older spellings in today's place.
void modernise(json& config, const std::string& source) {
  if (!config.contains("bfloat16")) return;
  APUS_CHECK(!config.contains("bf16"), ConfigError, source,
             ": bf16 and bfloat16 are one section; leave the older, bfloat16, out");
  config["bf16"] = config["bfloat16"];
  config.erase("bfloat16");
}

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Before the keys of its parameters, which are another's.
void check_type(const json& config, const std::string& section, const Words& types,
                const std::string& source) {
  const auto found = config.find(section);
  if (found == config.end() || !found->is_object()) return;
  const json* type = value_at(*found, "type");
  APUS_CHECK(type && type->is_string(), ConfigError, source, ": ", section, ".type is missing: one of ",
             join_words(types));
  const auto word = type->get<std::string>();
  APUS_CHECK(word != "auto", ConfigError, source, ": ", section,
             ".type is \"auto\", and nothing else says what it should be: give one of ", join_words(types));
  const auto same = [&](const std::string& known) { return lowered(known) == lowered(word); };
  if (std::ranges::none_of(types, same)) {
    throw NotSupported(detail::concat(source, ": ", section, ".type ", word, " is not supported: one of ",
                                      join_words(types), did_you_mean(word, types)));
  }
}

}  // namespace

DeepspeedConfig::DeepspeedConfig(const std::string& flag) : settled_(flag) {
  if (flag.empty()) return;
  json_ = load(flag);
  if (!is_object_text(flag)) source_ += " " + flag;
  modernise(json_, source_);
  APUS_CHECK(!json_.contains("zero_optimization") || !json_["zero_optimization"].is_boolean(), ConfigError,
             source_, ": zero_optimization is an object, as in {\"stage\": 2}, got ",
             dump_json(json_["zero_optimization"]));
  check_type(json_, "optimizer", {"AdamW", "Adam"}, source_);
  check_type(json_, "scheduler", {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}, source_);
  idle_ = check_keys(json_, deepspeed_keys(), source_);
  const bool is_preset = std::ranges::find(kPresets, flag, &Preset::name) != kPresets.end();
  if (!is_preset) settled_ = dump_json(json_);
}

const json* DeepspeedConfig::at(std::string_view path) const {
  return value_at(json_, path);
}

bool DeepspeedConfig::has(std::string_view path) const {
  const json* value = at(path);
  return value && *value != "auto";
}

bool DeepspeedConfig::is_auto(std::string_view path) const {
  const json* value = at(path);
  return value && *value == "auto";
}

std::optional<int64_t> DeepspeedConfig::integer(std::string_view path, int64_t least) const {
  if (!has(path)) return std::nullopt;
  const json& value = *at(path);
  const int64_t whole =
      value.is_number_integer() ? value.get<int64_t>() : static_cast<int64_t>(value.get<double>());
  APUS_CHECK(whole >= least, ConfigError, source_, ": ", path, " is ", whole, ", expected ", least,
             " or more");
  return whole;
}

json DeepspeedConfig::section(std::string_view path) const {
  const json* value = at(path);
  return value && value->is_object() ? *value : json::object();
}

}  // namespace apus::train
