// Every option changes what it says: seen in the settings that a resolved job hands to the layers below, or
// refused by name, or tested where the job itself uses it.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/train/job_fields.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

using Change = std::function<void(JobOptions&)>;

/// Everything that a resolved job says to the layers below, as text.
std::string settings_of(const JobOptions& job) {
  const SystemClock clock;
  nlohmann::ordered_json out;
  const parallel::ShardedModelOptions engine = engine_options(job, {.world = 4, .local_world = 2});
  out["engine"] = {
      engine.policy.name,
      engine.policy.param_shard,
      engine.policy.grad_shard,
      engine.policy.replicate,
      engine.policy.reshard_after_forward.index() == 0 && std::get<bool>(engine.policy.reshard_after_forward),
      static_cast<int>(engine.recompute),
      static_cast<int>(engine.compute_dtype.value_or(at::kDouble)),
      static_cast<int>(engine.reduce_dtype),
      static_cast<int>(engine.grad_accum_dtype),
      static_cast<int>(engine.optimizer_states),
      engine.deterministic};
  out["lora"] = peft::write_lora_config(lora_config(job));
  const peft::FreezeOptions freeze = freeze_options(job);
  out["freeze"] = {freeze.freeze_parameters_ratio, freeze.freeze_parameters, freeze.freeze_parameters_regex,
                   freeze.trainable_parameters, freeze.trainable_parameters_regex};
  const DpoOptions dpo = dpo_options(job);
  for (const auto& term : dpo.loss.terms) out["terms"].push_back({static_cast<int>(term.type), term.weight});
  out["dpo"] = {static_cast<int>(dpo.loss.variant),
                dpo.loss.beta,
                dpo.loss.label_smoothing,
                static_cast<int>(dpo.loss.f_divergence),
                dpo.loss.f_alpha.value_or(-1),
                dpo.loss.discopop_tau,
                dpo.loss.rpo_alpha.value_or(-1),
                static_cast<int>(dpo.reduction),
                dpo.ld_alpha.value_or(-1),
                dpo.dropout_seed.value_or(0),
                dpo.policy_adapters};
  for (const DatasetPart part : {DatasetPart::kTrain, DatasetPart::kHeldOut}) {
    const auto rows = prepare_options(job, part, job.max_length.value_or(99), clock);
    out["rows"].push_back({rows.read.files, rows.read.max_length.value_or(0),
                           static_cast<int>(rows.read.truncation), rows.read.strict,
                           rows.encode.use_chat_template, rows.encode.system.value_or(""),
                           rows.encode.columns.text(), rows.workers});
  }
  const auto packing = packing_options(job, 64);
  out["packing"] = {job.packing, packing.packing_length, packing.seed, packing.shuffle};
  const TrainerOptions loop = trainer_options(job, {});
  out["loop"] = {loop.num_train_epochs,
                 loop.max_steps,
                 loop.micro_batch_rows,
                 loop.eval_batch_rows,
                 loop.accumulation,
                 loop.drop_last,
                 loop.shuffle,
                 loop.data_seed,
                 static_cast<int>(loop.collate.layout),
                 loop.loader_workers,
                 loop.prefetch_factor,
                 loop.lr_scheduler_type,
                 loop.lr_scheduler_kwargs,
                 loop.warmup.warmup_ratio,
                 loop.warmup.warmup_steps,
                 loop.update.lr,
                 loop.update.beta1,
                 loop.update.beta2,
                 loop.update.epsilon,
                 loop.update.weight_decay,
                 loop.update.max_grad_norm,
                 loop.logging_steps,
                 loop.save_steps,
                 loop.eval_steps,
                 loop.metric_for_best_model,
                 loop.early_stopping.patience,
                 loop.save_best,
                 loop.fp16.enabled};
  return out.dump();
}

/// Flags of the loop whose effect stands in settings_of(), with a value that is not the default (and what it
/// needs beside).
std::map<std::string, Change> visible_loop_changes() {
  return {
      {"dataloader_num_workers", [](auto& o) { o.dataloader_num_workers = 7; }},
      {"dataloader_prefetch_factor", [](auto& o) { o.dataloader_prefetch_factor = 7; }},
      {"dataloader_drop_last", [](auto& o) { o.dataloader_drop_last = true; }},
      {"train_dataloader_shuffle", [](auto& o) { o.train_dataloader_shuffle = false; }},
      {"num_train_epochs", [](auto& o) { o.num_train_epochs = 5; }},
      {"max_steps", [](auto& o) { o.max_steps = 5; }},
      {"per_device_train_batch_size", [](auto& o) { o.per_device_train_batch_size = 2; }},
      {"per_device_eval_batch_size", [](auto& o) { o.per_device_eval_batch_size = 2; }},
      {"gradient_accumulation_steps", [](auto& o) { o.gradient_accumulation_steps = 2; }},
      {"logging_steps", [](auto& o) { o.logging_steps = 2; }},
      {"save_steps", [](auto& o) { o.save_steps = 2; }},
      {"eval_steps", [](auto& o) { o.eval_steps = 2; }},
      {"load_best_model_at_end",
       [](auto& o) {
         o.split_dataset_ratio = 0.5;
         o.load_best_model_at_end = true;
       }},
      {"metric_for_best_model", [](auto& o) { o.metric_for_best_model = "eval_rewards/margins"; }},
      {"early_stop_interval",
       [](auto& o) {
         o.split_dataset_ratio = 0.5;
         o.early_stop_interval = 2;
       }},
      {"learning_rate", [](auto& o) { o.learning_rate = 1; }},
      {"lr_scheduler_type", [](auto& o) { o.lr_scheduler_type = "linear"; }},
      {"lr_scheduler_kwargs", [](auto& o) { o.lr_scheduler_kwargs = R"({"num_cycles": 0.25})"; }},
      {"warmup_ratio", [](auto& o) { o.warmup_ratio = 0.5; }},
      {"warmup_steps", [](auto& o) { o.warmup_steps = 5; }},
      {"weight_decay", [](auto& o) { o.weight_decay = 0; }},
      {"adam_beta1", [](auto& o) { o.adam_beta1 = 0.5; }},
      {"adam_beta2", [](auto& o) { o.adam_beta2 = 0.5; }},
      {"adam_epsilon", [](auto& o) { o.adam_epsilon = 0.5; }},
      {"max_grad_norm", [](auto& o) { o.max_grad_norm = 0.5; }},
      {"data_seed", [](auto& o) { o.data_seed = 1; }},
  };
}

/// The same for all flags.
std::map<std::string, Change> visible_changes() {
  const auto full = [](const Change& change) {
    return [change](JobOptions& o) {
      o.train_type = "full";
      change(o);
    };
  };
  std::map<std::string, Change> changes = visible_loop_changes();
  const std::map<std::string, Change> others = {
      {"train_type", [](auto& o) { o.train_type = "full"; }},
      {"torch_dtype", [](auto& o) { o.torch_dtype = "bfloat16"; }},
      {"bf16", [](auto& o) { o.bf16 = true; }},
      {"base_dtype", [](auto& o) { o.base_dtype = "bfloat16"; }},
      {"lora_rank", [](auto& o) { o.lora_rank = 3; }},
      {"lora_alpha", [](auto& o) { o.lora_alpha = 3; }},
      {"lora_dropout", [](auto& o) { o.lora_dropout = 0.5; }},
      {"target_modules", [](auto& o) { o.target_modules = {"q_proj"}; }},
      {"target_regex", [](auto& o) { o.target_regex = ".*q_proj"; }},
      {"modules_to_save", [](auto& o) { o.modules_to_save = {"lm_head"}; }},
      {"lora_bias", [](auto& o) { o.lora_bias = "all"; }},
      {"use_rslora", [](auto& o) { o.use_rslora = true; }},
      {"rank_pattern", [](auto& o) { o.rank_pattern = R"({"q_proj": 2})"; }},
      {"alpha_pattern", [](auto& o) { o.alpha_pattern = R"({"q_proj": 2.5})"; }},
      {"freeze_parameters", full([](auto& o) { o.freeze_parameters = {"model"}; })},
      {"freeze_parameters_ratio", full([](auto& o) { o.freeze_parameters_ratio = 0.5; })},
      {"freeze_parameters_regex", full([](auto& o) { o.freeze_parameters_regex = "x"; })},
      {"trainable_parameters", full([](auto& o) { o.trainable_parameters = {"model"}; })},
      {"trainable_parameters_regex", full([](auto& o) { o.trainable_parameters_regex = "x"; })},
      {"model", [](auto& o) { o.model = "/models/other"; }},
      {"dataset", [](auto& o) { o.dataset = {"b.jsonl"}; }},
      {"val_dataset", [](auto& o) { o.val_dataset = {"v.jsonl"}; }},
      {"columns", [](auto& o) { o.columns = R"({"q": "prompt"})"; }},
      {"max_length", [](auto& o) { o.max_length = 32; }},
      {"truncation_strategy", [](auto& o) { o.truncation_strategy = "left"; }},
      {"use_chat_template", [](auto& o) { o.use_chat_template = false; }},
      {"system", [](auto& o) { o.system = "be brief"; }},
      {"strict", [](auto& o) { o.strict = true; }},
      {"padding_free", [](auto& o) { o.padding_free = true; }},
      {"packing", [](auto& o) { o.packing = true; }},
      {"packing_length",
       [](auto& o) {
         o.packing = true;
         o.packing_length = 128;
       }},
      {"full_determinism", [](auto& o) { o.full_determinism = true; }},
      {"beta", [](auto& o) { o.beta = 0.5; }},
      {"loss_type",
       [](auto& o) {
         o.loss_type = {"hinge", "sft"};
       }},
      {"loss_weights", [](auto& o) { o.loss_weights = {0.5}; }},
      {"loss_variant", [](auto& o) { o.loss_variant = "trl0.24"; }},
      {"label_smoothing",
       [](auto& o) {
         o.loss_type = {"robust"};
         o.label_smoothing = 0.1;
       }},
      {"rpo_alpha", [](auto& o) { o.rpo_alpha = 1; }},
      {"ld_alpha", [](auto& o) { o.ld_alpha = 0.5; }},
      {"discopop_tau", [](auto& o) { o.discopop_tau = 0.5; }},
      {"f_divergence_type", [](auto& o) { o.f_divergence_type = "js_divergence"; }},
      {"f_alpha_divergence_coef", [](auto& o) { o.f_alpha_divergence_coef = 0.75; }},
      {"dpo_reduction", [](auto& o) { o.dpo_reduction = "microbatch"; }},
      {"disable_dropout", [](auto& o) { o.disable_dropout = false; }},
      {"deepspeed", [](auto& o) { o.deepspeed = "zero2"; }},
      {"fsdp", [](auto& o) { o.fsdp = "full_shard auto_wrap"; }},
      {"fsdp_config",
       [](auto& o) {
         o.fsdp = "hybrid_shard";
         o.fsdp_config = R"({"dp_replicate": 4})";
       }},
      {"gradient_checkpointing", [](auto& o) { o.gradient_checkpointing = false; }},
      {"optim", [](auto& o) { o.optim = "adamw_bf16"; }},
      {"fp16", [](auto& o) { o.fp16 = true; }},
      {"grad_accum_dtype", [](auto& o) { o.grad_accum_dtype = "bfloat16"; }},
      {"reduce_dtype", [](auto& o) { o.reduce_dtype = "bfloat16"; }},
  };
  changes.insert(others.begin(), others.end());
  return changes;
}

/// Flags that resolve_job refuses, as their mechanism is not built.
std::map<std::string, Change> refused_changes() {
  return {
      {"rlhf_type", [](auto& o) { o.rlhf_type = "kto"; }},
      {"use_dora", [](auto& o) { o.use_dora = true; }},
      {"router_aux_loss_coef", [](auto& o) { o.router_aux_loss_coef = 1; }},
      {"tensor_model_parallel_size", [](auto& o) { o.tensor_model_parallel_size = 2; }},
      {"pipeline_model_parallel_size", [](auto& o) { o.pipeline_model_parallel_size = 2; }},
      {"virtual_pipeline_model_parallel_size", [](auto& o) { o.virtual_pipeline_model_parallel_size = 2; }},
      {"context_parallel_size", [](auto& o) { o.context_parallel_size = 2; }},
      {"expert_model_parallel_size", [](auto& o) { o.expert_model_parallel_size = 2; }},
      {"sequence_parallel_size", [](auto& o) { o.sequence_parallel_size = 2; }},
  };
}

/// Flags that the job itself uses, and the test that shows what they change.
const std::map<std::string, std::string>& tested_elsewhere() {
  static const std::map<std::string, std::string> tests = {
      {"rope_scaling", "JobModelTest.RotaryFlagsReachTheModel"},
      {"max_model_len", "JobModelTest.RotaryFlagsReachTheModel"},
      {"rope_batch_length", "JobModelTest.RotaryFlagsReachTheModel"},
      {"adapters", "JobModelTest.ReferencesFollowTheFlags"},
      {"ref_adapters", "JobModelTest.ReferencesFollowTheFlags"},
      {"ref_model", "JobModelTest.ReferencesFollowTheFlags"},
      {"reference_free", "JobModelTest.ReferencesFollowTheFlags"},
      {"lora_dtype", "JobModelTest.AnAdapterIsSavedInTheDtypeThatWasAskedFor"},
      {"seed", "JobModelTest.TheSeedDecidesTheAdaptersStart"},
      {"template", "JobData.TheTemplateFollowsTheFlag"},
      {"loss_scale", "JobData.TheLossScaleReachesTheRows"},
      {"split_dataset_ratio", "Job.TheReportAccountsForEveryRowAndNamesTheNextCommand"},
      {"save_total_limit", "EvaluatedRun.TidyKeepsTheNewestAndTheBest"},
      {"precompute_ref_log_probs", "Job.AReferenceComputedAheadGivesTheSameRun"},
      {"fsdp_transformer_layer_cls", "JobStrategy.TheLayerClassIsChecked"},
      {"ddp_timeout", "cli: the communicator's deadline"},
      {"output_dir", "Job.MergesAtItsEndIfAsked"},
      {"add_version", "RunDirectoryTest"},
      {"overwrite", "RunDirectoryTest"},
      {"resume_from_checkpoint", "Job.SaysWhatDiffersFromTheRunOfANamedCheckpoint"},
      {"resume_only_model", "Job.TakesTheWeightsAloneIfAsked"},
      {"report_to", "Job.WritesEventsForTensorBoardUnlessToldNotTo"},
      {"merge_lora", "Job.MergesAtItsEndIfAsked"},
  };
  return tests;
}

JobOptions resolved(const Change& change = [](JobOptions&) {}) {
  JobOptions options;
  options.model = "/models/tiny";
  options.dataset = {"a.jsonl"};
  change(options);
  return resolve_job(options, 4);
}

TEST(JobEffects, EveryOptionIsInOneOfTheLists) {
  std::set<std::string> listed;
  for (const auto& [flag, change] : visible_changes()) EXPECT_TRUE(listed.insert(flag).second) << flag;
  for (const auto& [flag, change] : refused_changes()) EXPECT_TRUE(listed.insert(flag).second) << flag;
  for (const auto& [flag, test] : tested_elsewhere()) EXPECT_TRUE(listed.insert(flag).second) << flag;
  std::set<std::string> fields;
  const JobOptions options;
  visit_fields(options, [&](const char* name, const auto&) { fields.insert(name); });
  EXPECT_EQ(listed, fields);
}

TEST(JobEffects, EachChangesWhatTheLayersBelowAreTold) {
  const std::string plain = settings_of(resolved());
  std::set<std::string> seen;
  for (const auto& [flag, change] : visible_changes()) {
    const std::string changed = settings_of(resolved(change));
    EXPECT_NE(changed, plain) << "--" << flag;
    const bool is_alias = flag == "bf16" || flag == "base_dtype" || flag == "torch_dtype";
    EXPECT_TRUE(seen.insert(changed).second || is_alias) << "--" << flag << " does what another flag does";
  }
}

TEST(JobEffects, WhatIsNotBuiltIsRefusedByName) {
  for (const auto& [flag, change] : refused_changes()) {
    try {
      resolved(change);
      ADD_FAILURE() << "--" << flag << " was accepted";
    } catch (const NotSupported& error) {
      EXPECT_NE(std::string(error.what()).find("--" + flag), std::string::npos) << error.what();
    }
  }
}

TEST(JobEffects, EachIsWrittenToArgsJson) {
  const nlohmann::ordered_json plain = to_json(resolved());
  for (const auto& [flag, change] : visible_changes()) {
    const nlohmann::ordered_json changed = to_json(resolved(change));
    const std::string key = flag == "bf16" || flag == "fp16" ? "torch_dtype" : flag;
    EXPECT_NE(changed.at(key), plain.at(key)) << "--" << flag;
  }
}

}  // namespace
}  // namespace apus::train
