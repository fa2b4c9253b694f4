// The resolved strategy in DeepSpeed's words.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apus/base/json.h"
#include "apus/optim/schedule.h"
#include "apus/train/job_settings.h"
#include "apus/train/loss_scaler.h"

namespace apus::train {
namespace {

using Json = nlohmann::ordered_json;
using memory::Residency;

int zero_stage(const parallel::ShardPolicy& policy) {
  if (policy.param_shard) return 3;
  if (policy.grad_shard) return 2;
  return policy.opt_shard ? 1 : 0;
}

Json offload(Residency residency) {
  if (residency == Residency::kDevice) return {{"device", "none"}};
  return {{"device", "cpu"}, {"pin_memory", true}};
}

Json zero_section(const parallel::ShardedModelOptions& engine) {
  const parallel::ShardPolicy& policy = engine.policy;
  Json zero = {{"stage", zero_stage(policy)}};
  if (policy.opt_shard) zero["offload_optimizer"] = offload(policy.residency.optimizer);
  if (policy.param_shard) zero["offload_param"] = offload(policy.residency.parameters);
  zero["reduce_bucket_size"] = engine.bucket_elements;
  if (policy.opt_shard) {
    zero["allgather_partitions"] = true;
    zero["allgather_bucket_size"] = engine.bucket_elements;
    zero["reduce_scatter"] = true;
  }
  zero["overlap_comm"] = engine.overlap_comm;
  zero["contiguous_gradients"] = true;
  if (!policy.param_shard) return zero;
  const int* partition = std::get_if<int>(&policy.reshard_after_forward);
  zero["zero_hpz_partition_size"] = partition ? *partition : 1;
  zero["stage3_gather_16bit_weights_on_model_save"] = true;
  return zero;
}

Json optimizer_section(const JobOptions& options) {
  return {{"type", "AdamW"},
          {"params",
           {{"lr", options.learning_rate.value_or(0)},
            {"betas", {options.adam_beta1, options.adam_beta2}},
            {"eps", options.adam_epsilon},
            {"weight_decay", options.weight_decay}}}};
}

/// The schedule's own settings, with the run's in the place of "auto".
Json scheduler_section(const JobOptions& options, int64_t steps) {
  const std::string& type = options.lr_scheduler_type;
  const std::string& kwargs = options.lr_scheduler_kwargs;
  Json params = Json::object();
  const int64_t warm_up = optim::resolve_warmup_steps(
      steps, {.warmup_ratio = options.warmup_ratio, .warmup_steps = options.warmup_steps});
  const bool is_deepspeeds = type.starts_with("Warmup");
  if (type == "WarmupLR" || type == "WarmupDecayLR") {
    params["warmup_min_lr"] = 0.0;
    params["warmup_max_lr"] = type == "WarmupLR" ? options.learning_rate.value_or(0) : 0.001;
  }
  params["warmup_num_steps"] = is_deepspeeds ? 1000 : warm_up;
  if (type != "WarmupLR") params["total_num_steps"] = steps;
  if (is_deepspeeds) params["warmup_type"] = "log";
  const Json own = kwargs.empty() ? Json::object() : parse_ordered_json(kwargs, "lr_scheduler_kwargs");
  for (const auto& [key, value] : own.items()) params[key] = value;
  const Json run = {{"warmup_min_lr", 0.0},
                    {"warmup_max_lr", options.learning_rate.value_or(0)},
                    {"warmup_num_steps", std::max<int64_t>(1, warm_up)},
                    {"total_num_steps", steps}};
  for (const auto& [key, value] : run.items()) {
    if (params.contains(key) && params[key] == "auto") params[key] = value;
  }
  return {{"type", type}, {"params", params}};
}

Json fp16_section(const JobOptions& options) {
  const Fp16Options fp16 = fp16_options(options);
  if (!fp16.enabled) return {{"enabled", false}};
  return {{"enabled", true},
          {"loss_scale", fp16.loss_scale},
          {"initial_scale_power", fp16.initial_scale_power},
          {"loss_scale_window", fp16.loss_scale_window},
          {"hysteresis", fp16.hysteresis},
          {"consecutive_hysteresis", fp16.consecutive_hysteresis},
          {"min_loss_scale", fp16.min_loss_scale}};
}

Json bf16_section(const JobOptions& options) {
  Json bf16 = {{"enabled", options.torch_dtype == "bfloat16"}};
  if (options.optim == "adamw_bf16") {
    bf16["bf16_master_weights_and_grads"] = true;
    bf16["bf16_optimizer_states"] = true;
  }
  return bf16;
}

/// The same in FSDP's words.
Json fsdp_section(const JobOptions& options, const parallel::ShardPolicy& policy) {
  const bool* reshards = std::get_if<bool>(&policy.reshard_after_forward);
  Json fsdp = {{"reshard_after_forward", !reshards || *reshards},
               {"dp_replicate", policy.replicate},
               {"cpu_offload", policy.residency.parameters == Residency::kHost}};
  if (options.gradient_checkpointing) fsdp["activation_checkpointing"] = *options.gradient_checkpointing;
  return fsdp;
}

}  // namespace

Json strategy_json(const JobOptions& options, const RankLayout& ranks, int64_t steps) {
  const int64_t accumulation = options.gradient_accumulation_steps.value_or(1);
  const parallel::ShardedModelOptions engine = engine_options(options, ranks);
  Json json;
  json["train_batch_size"] = options.per_device_train_batch_size * accumulation * ranks.world;
  json["train_micro_batch_size_per_gpu"] = options.per_device_train_batch_size;
  json["gradient_accumulation_steps"] = accumulation;
  json["gradient_clipping"] = options.max_grad_norm;
  json["optimizer"] = optimizer_section(options);
  json["scheduler"] = scheduler_section(options, steps);
  json["fp16"] = fp16_section(options);
  json["bf16"] = bf16_section(options);
  json["zero_optimization"] = zero_section(engine);
  if (engine.activations == Residency::kHost)
    json["activation_checkpointing"] = {{"cpu_checkpointing", true}};
  const auto word = [](at::ScalarType dtype) { return dtype == at::kBFloat16 ? "bf16" : "fp32"; };
  json["communication_data_type"] = word(engine.reduce_dtype);
  json["data_types"] = {{"grad_accum_dtype", word(engine.grad_accum_dtype)}};
  json["dataloader_drop_last"] = options.dataloader_drop_last;
  if (options.fsdp.empty()) return json;
  json["fsdp"] = options.fsdp;
  json["fsdp_config"] = fsdp_section(options, engine.policy);
  return json;
}

}  // namespace apus::train
