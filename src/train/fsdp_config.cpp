#include "train/fsdp_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"

namespace apus::train {
namespace {

using nlohmann::json;
using enum KeyKind;
using Words = std::vector<std::string>;

constexpr std::string_view kByBlock = "every block is a unit";
constexpr std::string_view kOneAhead = "one block is gathered ahead";
constexpr std::string_view kOwnFiles = "each rank reads its own part of the files";
constexpr std::string_view kNoXla = "leave the key out";

constexpr ConfigKey kKeys[] = {
    acting("version", kInteger),
    acting("reshard_after_forward", kAny),
    acting("cpu_offload", kBoolean),
    acting("offload_params", kBoolean),
    acting("offload", kBoolean),
    acting("activation_checkpointing", kBoolean),
    acting("transformer_layer_cls_to_wrap", kTexts),
    acting("dp_replicate", kInteger),
    refused("sharding_strategy", kAny, "", "name it in --fsdp, as in --fsdp full_shard"),
    idle("auto_wrap_policy", kText, kByBlock),
    idle("min_num_params", kInteger, kByBlock),
    idle("backward_prefetch", kText, kOneAhead),
    idle("backward_prefetch_policy", kText, kOneAhead),
    idle("forward_prefetch", kBoolean, kOneAhead),
    idle("limit_all_gathers", kBoolean, kOneAhead),
    idle("cpu_ram_efficient_loading", kBoolean, kOwnFiles),
    idle("sync_module_states", kBoolean, kOwnFiles),
    idle("state_dict_type", kText, "checkpoints hold the whole model always", "\"FULL_STATE_DICT\""),
    idle("use_orig_params", kBoolean, "for Python modules"),
    refused("xla", kBoolean, "false", kNoXla),
    refused("xla_fsdp_v2", kBoolean, "false", kNoXla),
    refused("xla_fsdp_grad_ckpt", kBoolean, "false", kNoXla),
    refused("xla_fsdp_settings", kSection, "", kNoXla),
};

bool among(const Words& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

/// The words of --fsdp, parted by spaces or commas, in small letters.
Words words_of(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return c == ',' ? ' ' : static_cast<char>(std::tolower(c)); });
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

const Words& kinds() {
  static const Words words = {"full_shard",         "shard_grad_op", "hybrid_shard",
                              "hybrid_shard_zero2", "fsdp2",         "no_shard"};
  return words;
}

void check_words(const Words& words, const std::string& flag) {
  Words known = kinds();
  known.insert(known.end(), {"auto_wrap", "offload"});
  for (const std::string& word : words) {
    APUS_CHECK(among(known, word), ConfigError, "--fsdp: nobody knows the word ", word,
               did_you_mean(word, known));
  }
  const auto named = std::ranges::count_if(words, [](const auto& word) { return among(kinds(), word); });
  APUS_CHECK(named == 1, ConfigError,
             "--fsdp takes one of full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2, no_shard and "
             "fsdp2, got \"",
             flag, "\"");
}

bool is_text(const std::string& flag) {
  return flag.find('{') != std::string::npos;
}

/// "--fsdp_config fsdp.json": what messages begin with.
std::string source_of(const std::string& flag) {
  return flag.empty() || is_text(flag) ? "--fsdp_config" : "--fsdp_config " + flag;
}

/// --fsdp_config: an object, or a file of one; keys without their prefix, words for booleans as booleans.
json load_config(const std::string& flag) {
  json stripped = json::object();
  if (flag.empty()) return stripped;
  json given;
  try {
    given = is_text(flag) ? parse_json_settings(flag, "the object") : load_json_settings(flag);
  } catch (const Error& error) {
    throw ConfigError(detail::concat("--fsdp_config: ", error.what()));
  }
  APUS_CHECK(given.is_object(), ConfigError, "--fsdp_config is a JSON object or a file of one, got ", flag);
  for (auto& [key, value] : given.items()) {
    const std::string name = key.starts_with("fsdp_") ? key.substr(5) : key;
    APUS_CHECK(!stripped.contains(name), ConfigError, source_of(flag), ": ", name, " and fsdp_", name,
               " are one key; leave one of them out");
    if (value == "true" || value == "True") value = true;
    if (value == "false" || value == "False") value = false;
    stripped[name] = value;
  }
  return stripped;
}

/// Whether parameters are gathered again for backward, in FSDP2's and in FSDP1's words; nothing: not said.
std::optional<bool> reshards(const json& config, const std::string& source) {
  const json* value = value_at(config, "reshard_after_forward");
  if (!value) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  const Words words = value->is_string() ? words_of(value->get<std::string>()) : Words();
  if (words == Words{"full_shard"} || words == Words{"hybrid_shard"}) return true;
  if (words == Words{"shard_grad_op"} || words == Words{"hybrid_shard_zero2"}) return false;
  throw ConfigError(source + ": reshard_after_forward is true or false, got " + dump_json(*value));
}

constexpr std::array kOffloadKeys = {"cpu_offload", "offload_params", "offload"};

}  // namespace

std::span<const ConfigKey> fsdp_keys() {
  return kKeys;
}

FsdpConfig::FsdpConfig(const JobOptions& options)
    : flag_(options.fsdp),
      layer_class_(options.fsdp_transformer_layer_cls),
      source_(source_of(options.fsdp_config)),
      words_(words_of(options.fsdp)),
      json_(load_config(options.fsdp_config)) {
  if (words_ == Words{"true"}) words_ = {"full_shard"};
  if (!flag_.empty()) check_words(words_, flag_);
  idle_ = check_keys(json_, kKeys, source_);
  const json* version = value_at(json_, "version");
  APUS_CHECK(!version || *version == 1 || *version == 2, ConfigError, source_, ": version is ",
             version ? dump_json(*version) : "", ", expected 1 or 2");
  check_agreement();
}

void FsdpConfig::contradict(const std::string& one, const std::string& other) const {
  throw ConfigError(
      detail::concat(one, " and ", other, " of ", source_, " contradict each other: leave one of them out"));
}

/// Of words and keys that say one thing twice.
void FsdpConfig::check_agreement() const {
  std::string first;
  std::optional<bool> offloads;
  if (has_word("offload")) {
    first = "--fsdp \"" + flag_ + "\"";
    offloads = true;
  }
  for (const char* key : kOffloadKeys) {
    const json* value = value_at(json_, key);
    if (!value) continue;
    const std::string shown = std::string(key) + (*value == true ? " true" : " false");
    if (offloads && *offloads != value->get<bool>()) contradict(first, shown);
    first = shown;
    offloads = value->get<bool>();
  }
  const bool keeps = has_word("shard_grad_op") || has_word("hybrid_shard_zero2");
  if (reshards(json_, source_) == true && keeps)
    contradict("--fsdp " + flag_,
               "reshard_after_forward " + dump_json(*value_at(json_, "reshard_after_forward")));
  const json* version = value_at(json_, "version");
  if (has_word("fsdp2") && version && *version == 1) contradict("--fsdp " + flag_, "version 1");
}

bool FsdpConfig::has_word(const std::string& word) const {
  return among(words_, word);
}

bool FsdpConfig::is_on(const char* key) const {
  const json* value = value_at(json_, key);
  return value && *value == true;
}

/// From forward to backward.
bool FsdpConfig::keeps_parameters() const {
  return has_word("shard_grad_op") || has_word("hybrid_shard_zero2") || reshards(json_, source_) == false;
}

int FsdpConfig::replicas(const RankLayout& ranks) const {
  if (const json* given = value_at(json_, "dp_replicate")) {
    const auto count = given->get<int64_t>();
    APUS_CHECK(count >= 1 && count <= 65'536, ConfigError, source_, ": dp_replicate is ", count,
               count < 1 ? ", expected 1 or more" : ", more copies than there are ranks");
    return static_cast<int>(count);
  }
  const bool is_hybrid = has_word("hybrid_shard") || has_word("hybrid_shard_zero2");
  if (!is_hybrid || ranks.local_world < 1 || ranks.world % ranks.local_world != 0) return 1;
  return ranks.world / ranks.local_world;
}

parallel::ShardPolicy FsdpConfig::policy(const RankLayout& ranks) const {
  const bool offloads = has_word("offload") ||
                        std::ranges::any_of(kOffloadKeys, [this](const char* key) { return is_on(key); });
  if (has_word("no_shard")) {
    APUS_CHECK(!offloads, ConfigError, "--fsdp ", flag_,
               ": offload needs shards, as in --fsdp \"full_shard offload\"");
    return parallel::Ddp();
  }
  const auto sharding =
      keeps_parameters() ? parallel::FsdpSharding::kShardGradOp : parallel::FsdpSharding::kFullShard;
  const int copies = replicas(ranks);
  parallel::ShardPolicy policy = parallel::Fsdp({.sharding = sharding});
  if (copies > 1) policy = parallel::HybridFsdp({.replicate = copies, .sharding = sharding});
  if (offloads) {
    using memory::Residency;
    policy.residency = {Residency::kHost, Residency::kHost, Residency::kHost};
  }
  return policy;
}

Words FsdpConfig::layer_classes() const {
  Words names;
  if (!layer_class_.empty()) names.push_back(layer_class_);
  if (const json* given = value_at(json_, "transformer_layer_cls_to_wrap")) {
    const Words more = given->is_array() ? given->get<Words>() : Words{given->get<std::string>()};
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

void FsdpConfig::check_replicas(int world) const {
  const json* given = value_at(json_, "dp_replicate");
  if (!given || flag_.empty()) return;
  const int copies = replicas({.world = world});
  APUS_CHECK(world % copies == 0, ConfigError, source_, ": dp_replicate ", copies, " keeps ", copies,
             " copies of the model, which do not divide the ", world, " ranks evenly; take a divisor of ",
             world);
}

void FsdpConfig::settle(JobOptions& options) const {
  options.fsdp_config = json_.empty() ? options.fsdp_config : dump_json(json_);
  if (!is_on("activation_checkpointing")) return;
  APUS_CHECK(options.gradient_checkpointing != false, ConfigError,
             "--gradient_checkpointing false and activation_checkpointing true of ", source_,
             " contradict each "
             "other: leave one of them out");
  options.gradient_checkpointing = true;
}

}  // namespace apus::train
