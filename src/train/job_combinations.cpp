#include "train/job_combinations.h"

#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/train/job_fields.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

bool evaluates(const JobOptions& options) {
  return !options.val_dataset.empty() || options.split_dataset_ratio > 0;
}

/// Tries what the losses make of their flags; where the message names none, it is about --loss_type.
void try_losses(const JobOptions& options) {
  try {
    DpoOptions tried = dpo_options(options);
    tried.reference = Reference::none();  // which it is, the job knows later
    DpoObjective{tried};
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    throw ConfigError(message.find("--") == std::string::npos ? "--loss_type: " + message : message);
  }
}

bool is_given(const JobOptions& options, const std::string& flag) {
  return options.given.contains(flag);
}

void check_preferences(const JobOptions& options) {
  if (options.task == "dpo") {
    try_losses(options);
    return;
  }
  visit_preference_fields(options, [&](const std::string& flag, const auto&) {
    const bool has_effect = flag == "disable_dropout";
    APUS_CHECK(has_effect || !is_given(options, flag), ConfigError, "--", flag,
               " is for dpo, and this command trains ", options.task, "; leave it out");
  });
  APUS_CHECK(options.disable_dropout != true || options.train_type == "full", ConfigError,
             "--disable_dropout true is for dpo; give --lora_dropout 0");
}

void check_references(const JobOptions& options) {
  const bool has_adapters = options.ref_adapters.has_value(), has_model = !options.ref_model.empty();
  const int ways =
      static_cast<int>(has_adapters) + static_cast<int>(has_model) + static_cast<int>(options.reference_free);
  APUS_CHECK(ways <= 1, ConfigError, "--ref_adapters, --ref_model and --reference_free exclude each other");
  APUS_CHECK(
      options.ref_adapters != "none" || !options.adapters.empty(), ConfigError,
      "--ref_adapters none needs --adapters: a new adapter's reference is the base with adapters off anyway");
  APUS_CHECK(!options.reference_free || !options.precompute_ref_log_probs, ConfigError,
             "--precompute_ref_log_probs has nothing to compute with --reference_free true");
  APUS_CHECK(
      !options.rope_batch_length || !options.precompute_ref_log_probs, ConfigError,
      "--precompute_ref_log_probs keeps one number a row, but with --rope_batch_length true it depends on "
      "the row's micro-batch; leave one of them out");
}

void check_full(const JobOptions& options) {
  visit_adapter_fields(options, [&](const std::string& flag, const auto&) {
    APUS_CHECK(!is_given(options, flag), ConfigError, "--", flag,
               " is for adapters, and --train_type full has none; leave it out, or take --train_type lora");
  });
  APUS_CHECK(options.adapters.empty() && !options.ref_adapters, ConfigError,
             "--adapters and --ref_adapters need --train_type lora; merge an adapter first (apus merge)");
  APUS_CHECK(!options.merge_lora, ConfigError,
             "--merge_lora true needs --train_type lora: there is nothing to merge");
}

void check_lora(const JobOptions& options) {
  APUS_CHECK(!freeze_options(options).any(), ConfigError,
             "--freeze_parameters, --trainable_parameters and their kin need --train_type full: with "
             "adapters the base "
             "is frozen anyway (see --target_modules, --modules_to_save)");
  if (options.adapters.empty()) peft::lora_sizes(lora_config(options));
}

void check_text_tasks(const JobOptions& options) {
  APUS_CHECK(options.task != "dpo" || options.loss_scale == "default", ConfigError, "--loss_scale ",
             options.loss_scale, " is for sft: in dpo every token of an answer counts 1");
  APUS_CHECK(options.task != "sft" || options.use_chat_template.value_or(true), ConfigError,
             "--use_chat_template false is for dpo and pt: give sft rows of {\"text\": ...}, which no "
             "template touches");
  APUS_CHECK(options.task != "pt" || !options.use_chat_template.value_or(false), ConfigError,
             "--use_chat_template true: pt takes texts as they are; run `apus sft` for conversations");
}

void check_ends(const JobOptions& options) {
  const std::string need = " needs held-out rows: give --val_dataset or --split_dataset_ratio";
  APUS_CHECK(!options.load_best_model_at_end || evaluates(options), ConfigError,
             "--load_best_model_at_end true", need);
  APUS_CHECK(!options.early_stop_interval || evaluates(options), ConfigError, "--early_stop_interval", need);
  const bool names_folder =
      options.resume_from_checkpoint != "auto" && options.resume_from_checkpoint != "none";
  APUS_CHECK(!options.resume_only_model || names_folder, ConfigError,
             "--resume_only_model true needs --resume_from_checkpoint FOLDER: whose weights shall be taken?");
  APUS_CHECK(options.report_to.size() <= 1 || !reports_to(options, "none"), ConfigError,
             "--report_to none and other words exclude each other");
}

}  // namespace

void check_combinations(const JobOptions& options) {
  APUS_CHECK(!options.model.empty(), ConfigError, "--model is missing: the folder of the model to train");
  APUS_CHECK(!options.dataset.empty(), ConfigError,
             "--dataset is missing: one or more files of rows (JSON Lines or arrays, also packed)");
  const bool has_names =
      !options.target_modules.empty() && options.target_modules != std::vector<std::string>{"all-linear"};
  APUS_CHECK(options.target_regex.empty() || !has_names, ConfigError,
             "--target_modules and --target_regex exclude each other");
  APUS_CHECK(options.val_dataset.empty() || options.split_dataset_ratio == 0, ConfigError,
             "--val_dataset and --split_dataset_ratio exclude each other");
}

void check_task_rules(const JobOptions& options) {
  check_preferences(options);
  check_references(options);
  if (options.train_type == "full") {
    check_full(options);
  } else {
    check_lora(options);
  }
  check_text_tasks(options);
  check_ends(options);
  shard_policy(options);
}

}  // namespace apus::train
