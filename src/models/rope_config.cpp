#include "apus/models/rope_config.h"

#include <cmath>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"

namespace apus::models {
namespace {

using ops::RopeScaling;
using ops::RopeType;

constexpr int64_t kLongest = int64_t{1} << 40;

double positive(const JsonView& view, const std::string& key, double value) {
  APUS_CHECK(std::isfinite(value) && value > 0, ConfigError, view.source(), ": ", view.path_of(key),
             " must be a positive number, it is ", value);
  return value;
}

RopeType rope_type(const JsonView& rope) {
  const std::string key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string text = rope.get_or<std::string>(key, "default");
  std::vector<std::string> known;
  std::string list;
  for (const RopeType type : ops::rope_types()) {
    if (text == rope_type_name(type)) return type;
    known.emplace_back(rope_type_name(type));
    list += (list.empty() ? "" : ", ") + known.back();
  }
  throw NotSupported(detail::concat(rope.source(), ": ", rope.path_of(key), " '", text, "' is not supported",
                                    did_you_mean(text, known), "; supported: ", list));
}

void refuse_partial_rotary(const JsonView& view) {
  const double part = view.get_or<double>("partial_rotary_factor", 1.0);
  APUS_CHECK(part == 1.0, NotSupported, view.source(), ": ", view.path_of("partial_rotary_factor"), " ", part,
             " is not supported: here the whole head turns (1.0)");
}

/// Keys that would change the numbers of any rule, and objects by layer type.
void refuse_other_keys(const JsonView& rope) {
  refuse_partial_rotary(rope);
  APUS_CHECK(!rope.has("mrope_section"), NotSupported, rope.source(), ": ", rope.path_of("mrope_section"),
             " is not supported: positions here are those of text");
  for (const std::string& key : rope.keys()) {
    APUS_CHECK(!rope.value().at(key).is_object(), NotSupported, rope.source(), ": ", rope.path_of(key),
               " is a rule of its own for some layers; supported: one rule for all layers");
  }
}

/// The object of either spelling; none if there is neither, or an empty one.
std::optional<JsonView> rope_object(const JsonView& view) {
  const auto filled = [&](const char* key) {
    std::optional<JsonView> found = view.find_object(key);
    if (found && found->value().empty()) found.reset();
    return found;
  };
  std::optional<JsonView> hub = filled("rope_scaling"), nested = filled("rope_parameters");
  APUS_CHECK(
      !hub || !nested || hub->value() == nested->value(), ConfigError, view.source(),
      ": rope_scaling and rope_parameters are both there and differ; keep the one that the model was trained "
      "with");
  return nested ? nested : hub;
}

int64_t original_length(const JsonView& view, const JsonView& rope, const RopeModel& model) {
  const std::string key = "original_max_position_embeddings";
  const JsonView& owner = view.has(key) ? view : rope;
  const int64_t length = owner.get_or<int64_t>(key, model.max_position_embeddings);
  APUS_CHECK(length > 1 && length <= kLongest, ConfigError, view.source(), ": ", owner.path_of(key),
             " must be from 2 to ", kLongest, ", it is ", length);
  return length;
}

/// Yarn and longrope may leave the factor to the ratio of the lengths.
double ratio_or_factor(const JsonView& rope, const RopeScaling& scaling, const RopeModel& model) {
  if (const auto given = rope.find<double>("factor")) return positive(rope, "factor", *given);
  return positive(rope, "factor",
                  static_cast<double>(model.max_position_embeddings) /
                      static_cast<double>(scaling.original_max_position_embeddings));
}

std::optional<double> attention_factor(const JsonView& rope) {
  const auto given = rope.find<double>("attention_factor");
  if (given) positive(rope, "attention_factor", *given);
  return given;
}

void read_yarn(const JsonView& rope, RopeScaling& scaling) {
  scaling.attention_factor = attention_factor(rope);
  // transformers takes 0 for absent, too.
  const auto turns = [&](const char* key, double fallback) {
    const double given = rope.get_or<double>(key, 0.0);
    return positive(rope, key, given == 0 ? fallback : given);
  };
  scaling.beta_fast = turns("beta_fast", scaling.beta_fast);
  scaling.beta_slow = turns("beta_slow", scaling.beta_slow);
  scaling.truncate = rope.get_or<bool>("truncate", true);
  for (const auto& [key, target] :
       {std::pair{"mscale", &scaling.mscale}, {"mscale_all_dim", &scaling.mscale_all_dim}}) {
    *target = rope.get_or<double>(key, 0.0);
    APUS_CHECK(std::isfinite(*target) && *target >= 0, ConfigError, rope.source(), ": ", rope.path_of(key),
               " must be 0 or a positive number, it is ", *target);
  }
}

void read_llama3(const JsonView& rope, RopeScaling& scaling) {
  scaling.low_freq_factor = positive(rope, "low_freq_factor", rope.require<double>("low_freq_factor"));
  scaling.high_freq_factor = positive(rope, "high_freq_factor", rope.require<double>("high_freq_factor"));
  APUS_CHECK(scaling.high_freq_factor > scaling.low_freq_factor, ConfigError, rope.source(), ": ",
             rope.path_of("high_freq_factor"), " ", scaling.high_freq_factor,
             " must be above low_freq_factor ", scaling.low_freq_factor);
}

std::vector<double> divisors(const JsonView& rope, const std::string& key, const RopeModel& model) {
  std::vector<double> values = rope.require<std::vector<double>>(key);
  APUS_CHECK(static_cast<int64_t>(values.size()) == model.head_dim / 2, ConfigError, rope.source(), ": ",
             rope.path_of(key), " has ", values.size(), " entries; head_dim ", model.head_dim, " needs ",
             model.head_dim / 2);
  for (const double value : values) positive(rope, key, value);
  return values;
}

RopeScaling read_scaling(const JsonView& view, const JsonView& rope, const RopeModel& model) {
  RopeScaling scaling{.type = rope_type(rope)};
  if (scaling.type == RopeType::kDefault) return scaling;
  if (scaling.type == RopeType::kLinear || scaling.type == RopeType::kDynamic) {
    scaling.factor = positive(rope, "factor", rope.require<double>("factor"));
    APUS_CHECK(scaling.type == RopeType::kLinear || model.head_dim > 2, ConfigError, view.source(),
               ": dynamic rope needs a head_dim above 2, it is ", model.head_dim);
    return scaling;
  }
  scaling.original_max_position_embeddings = original_length(view, rope, model);
  if (scaling.type == RopeType::kLlama3) {
    scaling.factor = positive(rope, "factor", rope.require<double>("factor"));
    read_llama3(rope, scaling);
    return scaling;
  }
  scaling.factor = ratio_or_factor(rope, scaling, model);
  if (scaling.type == RopeType::kYarn) {
    read_yarn(rope, scaling);
  } else {
    scaling.attention_factor = attention_factor(rope);
    scaling.short_factor = divisors(rope, "short_factor", model);
    scaling.long_factor = divisors(rope, "long_factor", model);
  }
  return scaling;
}

void put_yarn(const RopeScaling& scaling, nlohmann::ordered_json& json) {
  const RopeScaling plain;
  if (scaling.beta_fast != plain.beta_fast) json["beta_fast"] = scaling.beta_fast;
  if (scaling.beta_slow != plain.beta_slow) json["beta_slow"] = scaling.beta_slow;
  if (!scaling.truncate) json["truncate"] = false;
  if (scaling.mscale != 0) json["mscale"] = scaling.mscale;
  if (scaling.mscale_all_dim != 0) json["mscale_all_dim"] = scaling.mscale_all_dim;
}

}  // namespace

RopeConfig parse_rope(const nlohmann::json& config, const RopeModel& model) {
  const JsonView view(config, model.source);
  refuse_partial_rotary(view);
  RopeConfig rope{.theta = view.get_or<double>("rope_theta", 10000.0)};
  if (const auto object = rope_object(view)) {
    refuse_other_keys(*object);
    rope.theta = object->get_or<double>("rope_theta", rope.theta);
    rope.scaling = read_scaling(view, *object, model);
  }
  positive(view, "rope_theta", rope.theta);
  APUS_CHECK(rope.scaling.type != RopeType::kYarn || rope.theta > 1, ConfigError, view.source(),
             ": yarn needs a rope_theta above 1, it is ", rope.theta);
  return rope;
}

nlohmann::ordered_json rope_json(const RopeScaling& scaling) {
  if (scaling.type == RopeType::kDefault) return nullptr;
  nlohmann::ordered_json json = {{"rope_type", rope_type_name(scaling.type)}, {"factor", scaling.factor}};
  if (scaling.original_max_position_embeddings > 0)
    json["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  if (scaling.attention_factor) json["attention_factor"] = *scaling.attention_factor;
  if (scaling.type == RopeType::kYarn) put_yarn(scaling, json);
  if (scaling.type == RopeType::kLlama3) {
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
  }
  if (scaling.type == RopeType::kLongrope) {
    json["short_factor"] = scaling.short_factor;
    json["long_factor"] = scaling.long_factor;
  }
  return json;
}

}  // namespace apus::models
