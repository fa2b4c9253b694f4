#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/data/columns.h"
#include "apus/optim/schedule.h"
#include "apus/peft/lora_config.h"
#include "apus/train/job_fields.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

void check_choice(const std::string& flag, const std::string& value, const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string list;
  for (const std::string& word : allowed) list += (list.empty() ? "" : ", ") + word;
  throw ConfigError(detail::concat("--", flag, " ", value, " is not one of ", list));
}

/// Far beyond any job, and small enough that products of a few counts stay within 64 bits.
constexpr int64_t kMaxCount = 1'000'000;

void check_count(const std::string& flag, int64_t value) {
  APUS_CHECK(value >= 1 && value <= kMaxCount, ConfigError, "--", flag, " must lie between 1 and ", kMaxCount, ", got ",
             value);
}

void check_positive(const std::string& flag, int64_t value) {
  APUS_CHECK(value >= 1, ConfigError, "--", flag, " must be at least 1, got ", value);
}

/// Runs a check of a lower layer, which knows the setting but not its flag.
template <typename Check>
void check_named(const std::string& flag, Check&& check) {
  try {
    check();
  } catch (const NotSupported& error) {
    throw NotSupported(detail::concat("--", flag, ": ", error.what()));
  } catch (const Error& error) {
    throw ConfigError(detail::concat("--", flag, ": ", error.what()));
  }
}

void check_not_negative(const std::string& flag, double value) {
  APUS_CHECK(std::isfinite(value) && value >= 0, ConfigError, "--", flag, " must not be negative, got ", value);
}

void check_sizes(const JobOptions& options) {
  check_count("per_device_train_batch_size", options.per_device_train_batch_size);
  check_count("per_device_eval_batch_size", options.per_device_eval_batch_size);
  check_count("lora_rank", options.lora_rank);
  check_positive("logging_steps", options.logging_steps);
  check_positive("ddp_timeout", options.ddp_timeout);
  if (options.max_length) check_positive("max_length", *options.max_length);
  if (options.packing_length) check_positive("packing_length", *options.packing_length);
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
  APUS_CHECK(options.max_steps > 0 || (options.num_train_epochs > 0 && options.num_train_epochs <= 1e6), ConfigError,
             "--num_train_epochs must be positive and at most 1e6 where --max_steps is not given, got ",
             options.num_train_epochs);
}

void check_numbers(const JobOptions& options) {
  check_not_negative("learning_rate", options.learning_rate);
  check_not_negative("weight_decay", options.weight_decay);
  check_not_negative("lora_alpha", options.lora_alpha);
  check_not_negative("adam_epsilon", options.adam_epsilon);
  check_not_negative("max_grad_norm", options.max_grad_norm);
  for (const double beta : {options.adam_beta1, options.adam_beta2}) {
    APUS_CHECK(beta >= 0 && beta < 1, ConfigError, "--adam_beta1 and --adam_beta2 lie in [0, 1), got ", beta);
  }
  APUS_CHECK(options.beta > 0 && std::isfinite(options.beta), ConfigError, "--beta must be positive, got ", options.beta);
  APUS_CHECK(options.lora_dropout >= 0 && options.lora_dropout < 1, ConfigError, "--lora_dropout lies in [0, 1), got ",
             options.lora_dropout);
  APUS_CHECK(options.split_dataset_ratio >= 0 && options.split_dataset_ratio < 1, ConfigError,
             "--split_dataset_ratio lies in [0, 1), got ", options.split_dataset_ratio);
}

void check_words(const JobOptions& options) {
  check_choice("truncation_strategy", options.truncation_strategy, {"delete", "left", "right"});
  check_choice("dpo_reduction", options.dpo_reduction, {"pairs", "microbatch"});
  check_choice("lora_dtype", options.lora_dtype, {"float32", "bfloat16"});
  check_choice("lr_scheduler_type", options.lr_scheduler_type, optim::schedule_types());
  if (options.torch_dtype) check_choice("torch_dtype", *options.torch_dtype, {"float32", "bfloat16"});
  if (options.deepspeed != "" && options.deepspeed != "zero0" && options.deepspeed != "zero2") {
    throw NotSupported(detail::concat("--deepspeed ", options.deepspeed, " is not supported yet; zero0 and zero2 are"));
  }
}

void check_rules(const JobOptions& options) {
  const std::string ratio_flag = options.warmup_steps != 0 ? "warmup_steps" : "warmup_ratio";
  check_named(ratio_flag, [&] {
    optim::resolve_warmup_steps(100, {.warmup_ratio = options.warmup_ratio, .warmup_steps = options.warmup_steps});
  });
  check_named("lr_scheduler_kwargs", [&] {
    optim::LrSchedule({.type = options.lr_scheduler_type,
                       .learning_rate = options.learning_rate,
                       .total_steps = 100,
                       .kwargs = options.lr_scheduler_kwargs});
  });
  if (!options.target_regex.empty()) {
    check_named("target_regex", [&] { peft::target_matcher({.regex = options.target_regex}); });
  }
}

void check_packing(const JobOptions& options) {
  APUS_CHECK(options.packing || !options.packing_length, ConfigError, "--packing_length ", *options.packing_length,
             " needs --packing true");
  APUS_CHECK(!options.packing_length || !options.max_length || *options.packing_length >= *options.max_length,
             ConfigError, "--packing_length ", *options.packing_length, " is below --max_length ", *options.max_length,
             ": a row as long as that would fit into no pack");
}

void check_combinations(const JobOptions& options) {
  APUS_CHECK(!options.model.empty(), ConfigError, "--model is missing: the folder of the model to train");
  APUS_CHECK(!options.dataset.empty(), ConfigError, "--dataset is missing: one or more files of rows (JSON Lines or arrays, also packed)");
  APUS_CHECK(!options.ref_adapters || !options.adapters.empty(), ConfigError,
             "--ref_adapters needs --adapters: a new adapter's reference is the base with adapters off");
  if (options.ref_adapters && *options.ref_adapters != "none") {
    throw NotSupported(detail::concat("--ref_adapters ", *options.ref_adapters,
                                      " is not supported yet; `none` (the base) or leaving it out (a frozen copy of "
                                      "--adapters) are"));
  }
  APUS_CHECK(options.target_regex.empty() || options.target_modules.empty() ||
                 options.target_modules == std::vector<std::string>{"all-linear"},
             ConfigError, "--target_modules and --target_regex exclude each other");
  APUS_CHECK(options.val_dataset.empty() || options.split_dataset_ratio == 0, ConfigError,
             "--val_dataset and --split_dataset_ratio exclude each other");
}

std::string dtype_word(const JobOptions& options) {
  if (!options.bf16) return options.torch_dtype.value_or("");
  const std::string wanted = *options.bf16 ? "bfloat16" : "float32";
  APUS_CHECK(!options.torch_dtype || *options.torch_dtype == wanted, ConfigError, "--bf16 ",
             *options.bf16 ? "true" : "false", " and --torch_dtype ", *options.torch_dtype, " contradict each other");
  return wanted;
}

/// Fields as JSON, absent ones as null.
template <typename T>
nlohmann::ordered_json as_json(const T& value) {
  return value;
}

template <typename T>
nlohmann::ordered_json as_json(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

JobOptions resolve_job(JobOptions options, int world) {
  check_combinations(options);
  check_sizes(options);
  check_numbers(options);
  check_words(options);
  check_rules(options);
  check_packing(options);
  if (!options.columns.empty()) data::ColumnMap::parse(options.columns);
  if (options.packing) options.padding_free = true;  // rows in a pack lie end to end
  const std::string dtype = dtype_word(options);
  if (!dtype.empty()) options.torch_dtype = dtype;
  if (!options.gradient_accumulation_steps) {
    const int64_t rows = options.per_device_train_batch_size * world;
    options.gradient_accumulation_steps = std::max<int64_t>(1, (16 + rows - 1) / rows);
  }
  if (!options.eval_steps) options.eval_steps = options.save_steps;
  if (!options.data_seed) options.data_seed = 42;
  if (!options.target_regex.empty()) options.target_modules.clear();
  if (options.output_dir.empty()) {
    const std::filesystem::path model = std::filesystem::path(options.model) / "";
    options.output_dir = "output/" + model.parent_path().filename().string();
  }
  return options;
}

nlohmann::ordered_json to_json(const JobOptions& options) {
  nlohmann::ordered_json json;
  json["rlhf_type"] = "dpo";
  json["train_type"] = "lora";
  visit_fields(options, [&](const char* name, const auto& field) { json[name] = as_json(field); });
  json.erase("bf16");  // resolved, it is a word for torch_dtype
  return json;
}

namespace {

int zero_stage(const parallel::ShardPolicy& policy) {
  if (policy.param_shard) return 3;
  if (policy.grad_shard) return 2;
  return policy.opt_shard ? 1 : 0;
}

}  // namespace

nlohmann::ordered_json strategy_json(const JobOptions& options, int world) {
  const int64_t accumulation = options.gradient_accumulation_steps.value_or(1);
  const parallel::ShardedModelOptions engine = engine_options(options);
  nlohmann::ordered_json json;
  json["train_batch_size"] = options.per_device_train_batch_size * accumulation * world;
  json["train_micro_batch_size_per_gpu"] = options.per_device_train_batch_size;
  json["gradient_accumulation_steps"] = accumulation;
  json["gradient_clipping"] = options.max_grad_norm;
  json["bf16"] = {{"enabled", options.torch_dtype == "bfloat16"}};
  json["zero_optimization"] = {{"stage", zero_stage(engine.policy)}};
  json["zero_optimization"]["reduce_bucket_size"] = engine.bucket_elements;
  if (engine.policy.opt_shard) json["zero_optimization"]["allgather_bucket_size"] = engine.bucket_elements;
  return json;
}

}  // namespace apus::train
