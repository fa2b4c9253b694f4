#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/models/rope_config.h"

namespace apus::models {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFlag = "--rope_scaling";
constexpr double kLongest = static_cast<double>(int64_t{1} << 40);

/// The config's own rule as far as a new one is measured by it.
struct OwnRule {
  std::string type = "default";
  double factor = 1.0;
  std::optional<int64_t> original = {};
  std::optional<int64_t> maximum = {};
};

OwnRule own_rule(const JsonView& config) {
  OwnRule own{.original = config.find<int64_t>("original_max_position_embeddings"),
              .maximum = config.find<int64_t>("max_position_embeddings")};
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto rope = config.find_object(key);
    if (!rope) continue;
    own.type = rope->get_or<std::string>("rope_type", rope->get_or<std::string>("type", own.type));
    own.factor = rope->get_or<double>("factor", own.factor);
    if (!own.original) own.original = rope->find<int64_t>("original_max_position_embeddings");
  }
  APUS_CHECK(std::isfinite(own.factor) && own.factor > 0, ConfigError, config.source(),
             ": the rope factor must be positive, it is ", own.factor);
  return own;
}

int64_t original_length(const OwnRule& own, const JsonView& wanted, const JsonView& config) {
  const std::string key = "original_max_position_embeddings";
  std::optional<int64_t> length = wanted.find<int64_t>(key);
  if (!length) length = own.original;
  if (!length && own.maximum && own.type == "linear")
    length = static_cast<int64_t>(static_cast<double>(*own.maximum) / own.factor);
  if (!length) length = own.maximum;
  APUS_CHECK(length, ConfigError, kFlag, ": ", config.source(),
             " has no max_position_embeddings; give original_max_position_embeddings in the flag's JSON");
  APUS_CHECK(*length > 1, ConfigError, kFlag, ": the original length must be above 1, it is ", *length);
  return *length;
}

/// The flag's object: its own JSON, or just a type.
ordered_json flag_object(const std::string& flag) {
  if (flag.find('{') != std::string::npos) {
    ordered_json object = parse_ordered_json(flag, kFlag);
    APUS_CHECK(object.is_object(), ConfigError, kFlag, " must be a type's name or a JSON object, it is ",
               flag);
    if (!object.contains("rope_type")) object["rope_type"] = object.value("type", ordered_json("default"));
    object.erase("type");
    return object;
  }
  const bool is_plain = flag == "default" || flag == "linear" || flag == "dynamic" || flag == "yarn";
  APUS_CHECK(is_plain || (flag != "llama3" && flag != "longrope"), ConfigError, kFlag, " ", flag,
             " has parameters that only a JSON object can give, as rope_scaling of a config.json has them");
  APUS_CHECK(is_plain, NotSupported, kFlag, " '", flag,
             "' is no type; give linear, dynamic, yarn, default, or a JSON object as in config.json");
  return {{"rope_type", flag}};
}

void check_type(const std::string& type) {
  std::string list;
  for (const ops::RopeType known : ops::rope_types()) {
    if (type == rope_type_name(known)) return;
    list += (list.empty() ? "" : ", ") + std::string(rope_type_name(known));
  }
  throw NotSupported(detail::concat(kFlag, ": rope_type '", type, "' is not supported; supported: ", list));
}

double factor_of(const JsonView& wanted, const RopeOverride& flags, int64_t original) {
  if (const auto given = wanted.find<double>("factor")) return *given;
  APUS_CHECK(flags.max_model_len, ConfigError, kFlag, " ", *flags.rope_scaling,
             " needs --max_model_len (its factor is "
             "max_model_len / ",
             original, ", rounded up), or a JSON object with a factor");
  return std::max(std::ceil(static_cast<double>(*flags.max_model_len) / static_cast<double>(original)), 1.0);
}

void check_reach(const RopeOverride& flags, double factor, int64_t original) {
  const double reach = factor * static_cast<double>(original);
  APUS_CHECK(reach >= 1 && reach <= kLongest, ConfigError, kFlag, ": factor ", factor, " x ", original,
             " tokens is no length from 1 to ", kLongest);
  APUS_CHECK(!flags.max_model_len || static_cast<double>(*flags.max_model_len) <= reach, ConfigError,
             "--max_model_len ", flags.max_model_len.value_or(0), " is beyond ", factor, " x ", original,
             " = ", reach,
             " tokens, which the rotary rule reaches; give a larger factor with --rope_scaling");
}

/// --max_model_len without a new rule: the model's own must reach it.
std::optional<int64_t> own_length(const RopeOverride& flags, const OwnRule& own) {
  if (!own.maximum) return flags.max_model_len;
  if (own.type == "dynamic") {
    check_reach(flags, own.factor, *own.maximum);
  } else {
    APUS_CHECK(*flags.max_model_len <= *own.maximum, ConfigError, "--max_model_len ", *flags.max_model_len,
               " is beyond the model's max_position_embeddings ", *own.maximum,
               ": say with --rope_scaling (linear, dynamic, yarn) how its positions are stretched");
  }
  return flags.max_model_len;
}

/// Replaces the rule in the spelling that the config has.
void put_rule(ordered_json& config, ordered_json rule) {
  if (config.contains("rope_parameters") && config["rope_parameters"].is_object()) {
    const ordered_json& old = config["rope_parameters"];
    if (old.contains("rope_theta") && !rule.contains("rope_theta")) rule["rope_theta"] = old["rope_theta"];
    config["rope_parameters"] = std::move(rule);
    config.erase("rope_scaling");
  } else {
    config["rope_scaling"] = std::move(rule);
  }
}

}  // namespace

OverriddenConfig override_rope(const std::string& config_json, const RopeOverride& flags,
                               const std::string& source) {
  const nlohmann::json config = parse_json(config_json, source);
  const JsonView view(config, source);
  APUS_CHECK(!flags.max_model_len || *flags.max_model_len > 0, ConfigError,
             "--max_model_len must be positive, it is ", flags.max_model_len.value_or(0));
  if (!flags.rope_scaling && !flags.max_model_len)
    return {.config_json = config_json, .max_length = view.find<int64_t>("max_position_embeddings")};
  const OwnRule own = own_rule(view);
  if (!flags.rope_scaling) return {.config_json = config_json, .max_length = own_length(flags, own)};
  ordered_json rule = flag_object(*flags.rope_scaling);
  const nlohmann::json wanted_json = rule;
  const JsonView wanted(wanted_json, kFlag);
  const std::string type = wanted.require<std::string>("rope_type");
  check_type(type);
  const int64_t original = original_length(own, wanted, view);
  const double factor = type == "default" ? 1.0 : factor_of(wanted, flags, original);
  check_reach(flags, factor, original);
  const int64_t longest =
      flags.max_model_len.value_or(static_cast<int64_t>(factor * static_cast<double>(original)));
  if (type != "default") rule["factor"] = factor;
  if (type != "default" && type != "linear" && type != "dynamic")
    rule["original_max_position_embeddings"] = original;
  ordered_json changed = parse_ordered_json(config_json, source);
  changed.erase("original_max_position_embeddings");
  changed["max_position_embeddings"] = type == "dynamic" ? original : longest;
  put_rule(changed, std::move(rule));
  return {.config_json = dump_json(changed, {.indent = 2}) + "\n", .max_length = longest};
}

}  // namespace apus::models
