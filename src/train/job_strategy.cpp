// From the words of --deepspeed and --fsdp to the engine's options.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/nearest_name.h"
#include "apus/train/job_settings.h"
#include "train/deepspeed_config.h"
#include "train/fsdp_config.h"
#include "train/job_dtype.h"

namespace apus::train {
namespace {

using Words = std::vector<std::string>;

/// transformers' classes of one kind of model, its blocks' first.
Words layer_classes(const std::string& model_type) {
  const std::map<std::string, std::string> names = {{"qwen2", "Qwen2"},
                                                    {"qwen3", "Qwen3"},
                                                    {"llama", "Llama"},
                                                    {"mistral", "Mistral"},
                                                    {"internlm3", "InternLM3"}};
  const auto found = names.find(model_type);
  if (found == names.end()) return {};
  Words classes;
  for (const char* part : {"DecoderLayer", "Attention", "MLP", "RMSNorm"})
    classes.push_back(found->second + part);
  return classes;
}

std::string idle_note(const std::string& flag, const Words& keys) {
  return keys.empty() ? "" : "Without effect in " + flag + ": " + join_words(keys);
}

/// The fp16 section, whether or not it is on.
Fp16Options loss_scaling(const DeepspeedConfig& config) {
  Fp16Options fp16{.source = config.source()};
  fp16.loss_scale = config.number("fp16.loss_scale").value_or(fp16.loss_scale);
  fp16.initial_scale_power = config.integer("fp16.initial_scale_power").value_or(fp16.initial_scale_power);
  fp16.loss_scale_window = config.integer("fp16.loss_scale_window").value_or(fp16.loss_scale_window);
  fp16.hysteresis = config.integer("fp16.hysteresis").value_or(fp16.hysteresis);
  fp16.min_loss_scale = config.number("fp16.min_loss_scale").value_or(fp16.min_loss_scale);
  fp16.consecutive_hysteresis =
      config.boolean("fp16.consecutive_hysteresis").value_or(fp16.consecutive_hysteresis);
  return fp16;
}

}  // namespace

parallel::ShardPolicy shard_policy(const JobOptions& options, const RankLayout& ranks) {
  if (options.fsdp.empty()) {
    APUS_CHECK(options.fsdp_config.empty() && options.fsdp_transformer_layer_cls.empty(), ConfigError,
               options.fsdp_config.empty() ? "--fsdp_transformer_layer_cls" : "--fsdp_config",
               " needs --fsdp, as in --fsdp \"full_shard auto_wrap\"");
    return shard_policy(DeepspeedConfig(options.deepspeed));
  }
  APUS_CHECK(options.deepspeed.empty(), ConfigError, "--deepspeed ", options.deepspeed, " and --fsdp ",
             options.fsdp, " exclude each other: leave one of them out");
  return FsdpConfig(options).policy(ranks);
}

parallel::ShardedModelOptions engine_options(const JobOptions& options, const RankLayout& ranks) {
  parallel::ShardedModelOptions engine;
  const DeepspeedConfig deepspeed(options.deepspeed);
  tell_engine(deepspeed, engine);
  engine.policy = shard_policy(options, ranks);
  if (options.fsdp.empty()) {
    check_secondary_partition(deepspeed, ranks.world);
  } else {
    FsdpConfig(options).check_replicas(ranks.world);
  }
  engine.recompute = options.gradient_checkpointing.value_or(true) ? parallel::Recompute::kBlock
                                                                   : parallel::Recompute::kNone;
  if (options.torch_dtype) engine.compute_dtype = dtype_of(*options.torch_dtype);
  engine.reduce_dtype = dtype_of(options.reduce_dtype);
  engine.grad_accum_dtype = dtype_of(options.grad_accum_dtype);
  if (options.optim == "adamw_bf16") {
    engine.optimizer_states = memory::OptimizerStates::kBf16;
    engine.rounding_seed = static_cast<uint64_t>(options.seed);
    const bool is_said =
        options.given.contains("grad_accum_dtype") || deepspeed.has("data_types.grad_accum_dtype");
    if (!is_said) engine.grad_accum_dtype = at::kBFloat16;
  }
  engine.deterministic = options.full_determinism;
  return engine;
}

void settle_strategy(JobOptions& options, int world) {
  if (!options.deepspeed.empty()) {
    const DeepspeedConfig config(options.deepspeed);
    // Messages name the file, whose object takes its place now.
    (void)shard_policy(config);
    parallel::ShardedModelOptions engine;
    tell_engine(config, engine);
    loss_scaling(config).check();
    settle_deepspeed(options, config, world);
  }
  if (options.fsdp_config.empty()) return;
  const FsdpConfig config(options);
  config.check_replicas(world);
  config.settle(options);
}

Fp16Options fp16_options(const JobOptions& options) {
  Fp16Options fp16 = loss_scaling(DeepspeedConfig(options.deepspeed));
  fp16.enabled = options.torch_dtype == "float16";
  return fp16;
}

std::string strategy_note(const JobOptions& options) {
  if (!options.deepspeed.empty()) return idle_note("--deepspeed", DeepspeedConfig(options.deepspeed).idle());
  return idle_note("--fsdp_config", FsdpConfig(options).idle());
}

void check_layer_class(const JobOptions& options, const std::string& model_type) {
  const Words known = layer_classes(model_type);
  for (const std::string& name : FsdpConfig(options).layer_classes()) {
    const bool is_key = options.fsdp_transformer_layer_cls != name;
    const std::string flag =
        is_key ? "--fsdp_config: transformer_layer_cls_to_wrap " : "--fsdp_transformer_layer_cls ";
    const bool is_in = std::ranges::find(known, name) != known.end();
    APUS_CHECK(is_in, ConfigError, flag, name, " is no class of the model, whose type is ", model_type,
               known.empty() ? "" : "; its classes are ", join_words(known), did_you_mean(name, known),
               ": name its blocks, or leave it out: every block is a unit by itself");
    APUS_CHECK(name == known.front(), ConfigError, flag, name, " is no class of blocks: units are blocks, ",
               known.front(), "; leave it out");
  }
}

}  // namespace apus::train
