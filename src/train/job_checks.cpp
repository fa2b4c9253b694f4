#include "train/job_checks.h"

#include <algorithm>
#include <cmath>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/nearest_name.h"
#include "apus/optim/schedule.h"
#include "apus/peft/lora_config.h"
#include "train/job_combinations.h"

namespace apus::train {
namespace {

void check_choice(const std::string& flag, const std::string& value,
                  const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  throw ConfigError(detail::concat("--", flag, " ", value, " is not one of ", join_words(allowed),
                                   did_you_mean(value, allowed)));
}

/// Far beyond any job, and small enough that products of a few counts stay within 64 bits.
constexpr int64_t kMaxCount = 1'000'000;

void check_count(const std::string& flag, int64_t value) {
  APUS_CHECK(value >= 1 && value <= kMaxCount, ConfigError, "--", flag, " must lie between 1 and ", kMaxCount,
             ", got ", value);
}

void check_positive(const std::string& flag, int64_t value) {
  APUS_CHECK(value >= 1, ConfigError, "--", flag, " must be at least 1, got ", value);
}

/// A lower layer's message behind the flag's name, which is not said twice.
std::string named(const std::string& flag, const std::string& message) {
  const bool has_name = message.starts_with(flag + " ") || message.starts_with(flag + ":");
  return (has_name ? "--" : "--" + flag + ": ") + message;
}

/// Runs a check of a lower layer, which knows the setting but not its flag.
template <typename Check>
void check_named(const std::string& flag, Check&& check) {
  try {
    check();
  } catch (const NotSupported& error) {
    throw NotSupported(named(flag, error.what()));
  } catch (const Error& error) {
    throw ConfigError(named(flag, error.what()));
  }
}

void check_not_negative(const std::string& flag, double value) {
  APUS_CHECK(std::isfinite(value) && value >= 0, ConfigError, "--", flag, " must not be negative, got ",
             value);
}

void check_sizes(const JobOptions& options) {
  check_count("per_device_train_batch_size", options.per_device_train_batch_size);
  check_count("per_device_eval_batch_size", options.per_device_eval_batch_size);
  check_count("lora_rank", options.lora_rank);
  check_positive("logging_steps", options.logging_steps);
  check_positive("ddp_timeout", options.ddp_timeout);
  if (options.max_length) check_positive("max_length", *options.max_length);
  if (options.packing_length) check_positive("packing_length", *options.packing_length);
  if (options.max_model_len) check_positive("max_model_len", *options.max_model_len);
  if (options.early_stop_interval) check_positive("early_stop_interval", *options.early_stop_interval);
  if (options.save_total_limit) check_positive("save_total_limit", *options.save_total_limit);
  if (options.gradient_accumulation_steps) {
    check_count("gradient_accumulation_steps", *options.gradient_accumulation_steps);
  }
  check_not_negative("save_steps", static_cast<double>(options.save_steps));
  check_not_negative("eval_steps", static_cast<double>(options.eval_steps.value_or(0)));
  check_not_negative("dataloader_num_workers", static_cast<double>(options.dataloader_num_workers));
  check_count("dataloader_prefetch_factor", options.dataloader_prefetch_factor);
  APUS_CHECK(options.dataloader_num_workers <= 1024, ConfigError, "--dataloader_num_workers ",
             options.dataloader_num_workers, " is more than 1024 threads a rank");
  APUS_CHECK(options.max_steps > 0 || (options.num_train_epochs > 0 && options.num_train_epochs <= 1e6),
             ConfigError,
             "--num_train_epochs must be positive and at most 1e6 where --max_steps is not given, got ",
             options.num_train_epochs);
}

void check_numbers(const JobOptions& options) {
  check_not_negative("learning_rate", options.learning_rate.value_or(0));
  check_not_negative("weight_decay", options.weight_decay);
  check_not_negative("lora_alpha", options.lora_alpha);
  check_not_negative("adam_epsilon", options.adam_epsilon);
  check_not_negative("max_grad_norm", options.max_grad_norm);
  for (const double beta : {options.adam_beta1, options.adam_beta2}) {
    APUS_CHECK(beta >= 0 && beta < 1, ConfigError, "--adam_beta1 and --adam_beta2 lie in [0, 1), got ", beta);
  }
  APUS_CHECK(options.beta > 0 && std::isfinite(options.beta), ConfigError, "--beta must be positive, got ",
             options.beta);
  APUS_CHECK(options.lora_dropout >= 0 && options.lora_dropout < 1, ConfigError,
             "--lora_dropout lies in [0, 1), got ", options.lora_dropout);
  APUS_CHECK(options.freeze_parameters_ratio >= 0 && options.freeze_parameters_ratio <= 1, ConfigError,
             "--freeze_parameters_ratio lies in [0, 1], got ", options.freeze_parameters_ratio);
  APUS_CHECK(options.split_dataset_ratio >= 0 && options.split_dataset_ratio < 1, ConfigError,
             "--split_dataset_ratio lies in [0, 1), got ", options.split_dataset_ratio);
}

void check_words(const JobOptions& options) {
  const std::vector<std::string> dtypes = {"float32", "bfloat16", "float16"};
  check_choice("truncation_strategy", options.truncation_strategy, {"delete", "left", "right"});
  check_choice("dpo_reduction", options.dpo_reduction, {"pairs", "microbatch"});
  check_choice("lora_dtype", options.lora_dtype, {"float32", "bfloat16"});
  check_choice("lr_scheduler_type", options.lr_scheduler_type, optim::schedule_types());
  if (options.torch_dtype) check_choice("torch_dtype", *options.torch_dtype, dtypes);
  check_choice("task", options.task, {"dpo", "sft", "pt"});
  check_choice("train_type", options.train_type, {"lora", "full"});
  check_choice("lora_bias", options.lora_bias, {"none", "all", "lora_only"});
  check_choice("loss_scale", options.loss_scale, {"default", "last_round", "all"});
  check_choice("loss_variant", options.loss_variant, {"current", "trl0.24"});
  check_choice("optim", options.optim, {"adamw", "adamw_bf16"});
  check_choice("grad_accum_dtype", options.grad_accum_dtype, {"float32", "bfloat16"});
  check_choice("reduce_dtype", options.reduce_dtype, {"float32", "bfloat16"});
  if (options.base_dtype) check_choice("base_dtype", *options.base_dtype, dtypes);
  for (const std::string& word : options.report_to) check_choice("report_to", word, {"none", "tensorboard"});
}

void check_rules(const JobOptions& options) {
  const std::string ratio_flag = options.warmup_steps != 0 ? "warmup_steps" : "warmup_ratio";
  check_named(ratio_flag, [&] {
    optim::resolve_warmup_steps(100,
                                {.warmup_ratio = options.warmup_ratio, .warmup_steps = options.warmup_steps});
  });
  check_named("lr_scheduler_kwargs", [&] {
    optim::LrSchedule(
        {.type = options.lr_scheduler_type,
         .learning_rate = options.learning_rate.value_or(options.train_type == "lora" ? 1e-4 : 1e-5),
         .total_steps = 100,
         .kwargs = options.lr_scheduler_kwargs});
  });
  if (!options.target_regex.empty()) {
    check_named("target_regex", [&] { peft::target_matcher({.regex = options.target_regex}); });
  }
}

void check_packing(const JobOptions& options) {
  APUS_CHECK(options.packing || !options.packing_length, ConfigError, "--packing_length ",
             *options.packing_length, " needs --packing true");
  APUS_CHECK(!options.packing_length || !options.max_length || *options.packing_length >= *options.max_length,
             ConfigError, "--packing_length ", *options.packing_length, " is below --max_length ",
             *options.max_length, ": a row as long as that would fit into no pack");
}

}  // namespace

void check_job(const JobOptions& options) {
  check_combinations(options);
  check_sizes(options);
  check_numbers(options);
  check_words(options);
  check_rules(options);
  check_packing(options);
  check_task_rules(options);
}

}  // namespace apus::train
