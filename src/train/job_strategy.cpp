// From the words of --deepspeed and --fsdp to the engine's options.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

using Words = std::vector<std::string>;

bool among(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The words of --fsdp, parted by spaces or commas.
Words words_of(std::string text) {
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// The keys of --fsdp_config: what acts, and what speaks to PyTorch alone. Either may begin with "fsdp_".
const Words kActs = {"dp_replicate", "reshard_after_forward", "version", "transformer_layer_cls_to_wrap"};
const Words kPyTorchOnly = {"auto_wrap_policy",
                            "backward_prefetch",
                            "backward_prefetch_policy",
                            "cpu_ram_efficient_loading",
                            "forward_prefetch",
                            "limit_all_gathers",
                            "min_num_params",
                            "state_dict_type",
                            "sync_module_states",
                            "use_orig_params",
                            "xla",
                            "xla_fsdp_grad_ckpt"};
const Words kOffload = {"cpu_offload", "offload_params", "offload"};

/// --fsdp_config: an object, or a file of one; keys without their prefix.
nlohmann::json fsdp_config(const JobOptions& options) {
  nlohmann::json stripped = nlohmann::json::object();
  if (options.fsdp_config.empty()) return stripped;
  const bool is_text = options.fsdp_config.find('{') != std::string::npos;
  nlohmann::json json;
  try {
    json = is_text ? parse_json(options.fsdp_config, "the object") : load_json_file(options.fsdp_config);
  } catch (const Error& error) {
    throw ConfigError(detail::concat("--fsdp_config: ", error.what()));
  }
  APUS_CHECK(json.is_object(), ConfigError, "--fsdp_config is a JSON object or a file of one, got ",
             options.fsdp_config);
  for (const auto& [key, value] : json.items()) {
    const std::string name = key.starts_with("fsdp_") ? key.substr(5) : key;
    if (among(kOffload, name) && value != false) {
      throw NotSupported(detail::concat("--fsdp_config: ", key, " is not supported yet; leave it out"));
    }
    if (!among(kActs, name) && !among(kPyTorchOnly, name) && !among(kOffload, name)) {
      Words known = kActs;
      known.insert(known.end(), kPyTorchOnly.begin(), kPyTorchOnly.end());
      throw ConfigError(
          detail::concat("--fsdp_config: nobody knows the key ", key, did_you_mean(name, known)));
    }
    stripped[name] = value;
  }
  return stripped;
}

template <typename Value>
std::optional<Value> config_value(const nlohmann::json& config, const char* key) {
  return JsonView(config, "--fsdp_config").find<Value>(key);
}

/// Whether parameters are gathered again for backward; nothing: the words decide.
std::optional<bool> reshard_of(const nlohmann::json& config) {
  if (!config.contains("reshard_after_forward")) return std::nullopt;
  const nlohmann::json& value = config.at("reshard_after_forward");
  if (value.is_boolean()) return value.get<bool>();
  if (value == "FULL_SHARD" || value == "true") return true;
  if (value == "SHARD_GRAD_OP" || value == "false") return false;
  throw ConfigError("--fsdp_config: reshard_after_forward is true or false, got " + dump_json(value));
}

int replicas_of(const nlohmann::json& config, bool is_hybrid, const RankLayout& ranks) {
  if (const auto given = config_value<int>(config, "dp_replicate")) {
    APUS_CHECK(*given >= 1, ConfigError, "--fsdp_config: dp_replicate is ", *given, ", expected 1 or more");
    return *given;
  }
  if (!is_hybrid || ranks.local_world < 1 || ranks.world % ranks.local_world != 0) return 1;
  return ranks.world / ranks.local_world;
}

parallel::ShardPolicy fsdp_policy(const JobOptions& options, const RankLayout& ranks) {
  const Words known = {"full_shard", "shard_grad_op", "hybrid_shard", "fsdp2", "auto_wrap"};
  const Words words = words_of(options.fsdp);
  for (const std::string& word : words) {
    if (word == "offload") {
      throw NotSupported(
          "--fsdp offload is not supported yet; leave the word out, and see --gradient_checkpointing");
    }
    APUS_CHECK(among(known, word), ConfigError, "--fsdp: nobody knows the word ", word,
               did_you_mean(word, known));
  }
  const int64_t kinds =
      std::count_if(words.begin(), words.end(), [](const auto& w) { return w != "auto_wrap"; });
  APUS_CHECK(kinds == 1, ConfigError,
             "--fsdp takes one of full_shard, shard_grad_op, hybrid_shard and fsdp2, got \"", options.fsdp,
             "\"");
  const nlohmann::json config = fsdp_config(options);
  const std::optional<bool> reshards = reshard_of(config);
  const bool keeps = among(words, "shard_grad_op") || reshards == false;
  const auto sharding = keeps ? parallel::FsdpSharding::kShardGradOp : parallel::FsdpSharding::kFullShard;
  const int replicas = replicas_of(config, among(words, "hybrid_shard"), ranks);
  if (replicas > 1) return parallel::HybridFsdp({.replicate = replicas, .sharding = sharding});
  return parallel::Fsdp({.sharding = sharding});
}

parallel::ShardPolicy deepspeed_policy(const std::string& preset) {
  if (preset.empty() || preset == "zero0") return parallel::Ddp();
  if (preset == "zero1") return parallel::Zero1();
  if (preset == "zero2") return parallel::Zero2();
  if (preset == "zero3") return parallel::Zero3();
  const bool is_file = preset.ends_with(".json") || preset.find('{') != std::string::npos;
  if (is_file || preset.find("offload") != std::string::npos) {
    throw NotSupported(
        detail::concat("--deepspeed ", preset, " is not supported yet: zero0, zero1, zero2 and zero3 are"));
  }
  const Words stages = {"zero0", "zero1", "zero2", "zero3"};
  const bool is_stage =
      preset.starts_with("zero") && preset.find_first_not_of("0123456789", 4) == preset.npos;
  throw ConfigError(detail::concat("--deepspeed ", preset, ": no such ", is_stage ? "stage" : "preset",
                                   "; one of ", join_words(stages),
                                   is_stage ? "" : did_you_mean(preset, stages)));
}

/// Copies of the model that hybrid sharding keeps must share the ranks evenly.
void check_replicas(const JobOptions& options, const parallel::ShardPolicy& policy, int world) {
  const int replicas = policy.replicate;
  if (options.fsdp.empty() || (replicas >= 1 && world % replicas == 0)) return;
  throw ConfigError(detail::concat("--fsdp_config: dp_replicate ", replicas, " keeps ", replicas,
                                   " copies of the model, which do not divide the ", world,
                                   " ranks evenly; take a divisor of ", world));
}

at::ScalarType dtype_of(const std::string& word) {
  return word == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

std::string lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

int zero_stage(const parallel::ShardPolicy& policy) {
  if (policy.param_shard) return 3;
  if (policy.grad_shard) return 2;
  return policy.opt_shard ? 1 : 0;
}

}  // namespace

parallel::ShardPolicy shard_policy(const JobOptions& options, const RankLayout& ranks) {
  if (options.fsdp.empty()) {
    APUS_CHECK(options.fsdp_config.empty() && options.fsdp_transformer_layer_cls.empty(), ConfigError,
               options.fsdp_config.empty() ? "--fsdp_transformer_layer_cls" : "--fsdp_config",
               " needs --fsdp, as in --fsdp \"full_shard auto_wrap\"");
    return deepspeed_policy(options.deepspeed);
  }
  APUS_CHECK(options.deepspeed.empty(), ConfigError, "--deepspeed ", options.deepspeed, " and --fsdp ",
             options.fsdp, " exclude each other: leave one of them out");
  return fsdp_policy(options, ranks);
}

parallel::ShardedModelOptions engine_options(const JobOptions& options, const RankLayout& ranks) {
  parallel::ShardedModelOptions engine;
  engine.policy = shard_policy(options, ranks);
  check_replicas(options, engine.policy, ranks.world);
  engine.recompute = options.gradient_checkpointing.value_or(true) ? parallel::Recompute::kBlock
                                                                   : parallel::Recompute::kNone;
  if (options.torch_dtype) engine.compute_dtype = dtype_of(*options.torch_dtype);
  engine.reduce_dtype = dtype_of(options.reduce_dtype);
  engine.grad_accum_dtype = dtype_of(options.grad_accum_dtype);
  if (options.optim == "adamw_bf16") {
    engine.optimizer_states = memory::OptimizerStates::kBf16;
    engine.rounding_seed = static_cast<uint64_t>(options.seed);
    if (!options.given.contains("grad_accum_dtype")) engine.grad_accum_dtype = at::kBFloat16;
  }
  engine.deterministic = options.full_determinism;
  return engine;
}

std::string fsdp_note(const JobOptions& options) {
  std::string names;
  const nlohmann::json config = fsdp_config(options);
  for (const auto& [key, value] : config.items()) {
    if (among(kPyTorchOnly, key)) names += (names.empty() ? "" : ", ") + key;
  }
  return names.empty() ? "" : "Without effect in --fsdp_config: " + names;
}

void check_layer_class(const JobOptions& options, const std::string& model_type) {
  std::string name = options.fsdp_transformer_layer_cls;
  const nlohmann::json config = fsdp_config(options);
  if (name.empty() && config.contains("transformer_layer_cls_to_wrap")) {
    const nlohmann::json& given = config.at("transformer_layer_cls_to_wrap");
    name = given.is_array() && given.size() == 1 ? given[0].get<std::string>()
           : given.is_string()                   ? given.get<std::string>()
                                                 : "(several)";
  }
  if (name.empty()) return;
  APUS_CHECK(lowered(name) == lowered(model_type) + "decoderlayer", ConfigError,
             "--fsdp_transformer_layer_cls ", name, " is not the class of the blocks of a model of type ",
             model_type, "; leave it out: every block is wrapped by itself");
}

nlohmann::ordered_json strategy_json(const JobOptions& options, int world) {
  const int64_t accumulation = options.gradient_accumulation_steps.value_or(1);
  const parallel::ShardedModelOptions engine =
      engine_options(options, {.world = world, .local_world = world});
  nlohmann::ordered_json json;
  json["train_batch_size"] = options.per_device_train_batch_size * accumulation * world;
  json["train_micro_batch_size_per_gpu"] = options.per_device_train_batch_size;
  json["gradient_accumulation_steps"] = accumulation;
  json["gradient_clipping"] = options.max_grad_norm;
  json["bf16"] = {{"enabled", options.torch_dtype == "bfloat16"}};
  json["zero_optimization"] = {{"stage", zero_stage(engine.policy)}};
  json["zero_optimization"]["reduce_bucket_size"] = engine.bucket_elements;
  if (engine.policy.opt_shard) json["zero_optimization"]["allgather_bucket_size"] = engine.bucket_elements;
  if (engine.reduce_dtype == at::kBFloat16) json["communication_data_type"] = "bf16";
  if (engine.grad_accum_dtype == at::kBFloat16) json["data_types"] = {{"grad_accum_dtype", "bf16"}};
  if (!options.fsdp.empty()) json["fsdp"] = options.fsdp;
  return json;
}

}  // namespace apus::train
