#include "apus/cli/training_command.h"

#include <algorithm>
#include <cctype>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

/// Carries given values into fields; a flag that was not given, or says none, auto or the like, leaves its
/// field alone.
class Binder {
 public:
  Binder(const FlagValues& values, const FlagTable& table) : values_(values), table_(table) {}

  template <typename T>
  void operator()(const char* name, T& field) const {
    const Flag* flag = table_.find(name);
    APUS_ASSERT(flag != nullptr && flag->status == FlagStatus::kActs, "--", name, " is not in the table");
    const FlagValue* value = values_.find(name);
    if (value != nullptr && !says_default(*flag, *value)) put(*flag, *value, field);
  }

 private:
  static void put(const Flag&, const FlagValue& value, std::string& field) { field = value.text(); }
  static void put(const Flag&, const FlagValue& value, int64_t& field) { field = value.integer(); }
  static void put(const Flag&, const FlagValue& value, double& field) { field = value.number(); }
  static void put(const Flag&, const FlagValue& value, bool& field) { field = value.boolean(); }
  static void put(const Flag& flag, const FlagValue& value, std::vector<std::string>& field) {
    field = value.list(flag.kind);
  }
  template <typename T>
  static void put(const Flag& flag, const FlagValue& value, std::optional<T>& field) {
    T given{};
    put(flag, value, given);
    field = std::move(given);
  }

  const FlagValues& values_;
  const FlagTable& table_;
};

void bind_model(const Binder& bind, train::DpoJobOptions& job) {
  bind("model", job.model);
  bind("torch_dtype", job.torch_dtype);
  bind("bf16", job.bf16);
  bind("adapters", job.adapters);
  bind("ref_adapters", job.ref_adapters);
  bind("lora_rank", job.lora_rank);
  bind("lora_alpha", job.lora_alpha);
  bind("lora_dropout", job.lora_dropout);
  bind("target_modules", job.target_modules);
  bind("target_regex", job.target_regex);
  bind("use_rslora", job.use_rslora);
  bind("lora_dtype", job.lora_dtype);
}

void bind_data(const Binder& bind, train::DpoJobOptions& job) {
  bind("dataset", job.dataset);
  bind("val_dataset", job.val_dataset);
  bind("split_dataset_ratio", job.split_dataset_ratio);
  bind("max_length", job.max_length);
  bind("truncation_strategy", job.truncation_strategy);
  bind("use_chat_template", job.use_chat_template);
  bind("system", job.system);
  bind("strict", job.strict);
  bind("padding_free", job.padding_free);
  bind("dataloader_num_workers", job.dataloader_num_workers);
  bind("dataloader_prefetch_factor", job.dataloader_prefetch_factor);
  bind("dataloader_drop_last", job.dataloader_drop_last);
  bind("train_dataloader_shuffle", job.train_dataloader_shuffle);
}

void bind_loop(const Binder& bind, train::DpoJobOptions& job) {
  bind("num_train_epochs", job.num_train_epochs);
  bind("max_steps", job.max_steps);
  bind("per_device_train_batch_size", job.per_device_train_batch_size);
  bind("per_device_eval_batch_size", job.per_device_eval_batch_size);
  bind("gradient_accumulation_steps", job.gradient_accumulation_steps);
  bind("gradient_checkpointing", job.gradient_checkpointing);
  bind("logging_steps", job.logging_steps);
  bind("save_steps", job.save_steps);
  bind("eval_steps", job.eval_steps);
  bind("save_total_limit", job.save_total_limit);
  bind("seed", job.seed);
  bind("data_seed", job.data_seed);
}

void bind_optimizer(const Binder& bind, train::DpoJobOptions& job) {
  bind("learning_rate", job.learning_rate);
  bind("lr_scheduler_type", job.lr_scheduler_type);
  bind("lr_scheduler_kwargs", job.lr_scheduler_kwargs);
  bind("warmup_ratio", job.warmup_ratio);
  bind("warmup_steps", job.warmup_steps);
  bind("weight_decay", job.weight_decay);
  bind("adam_beta1", job.adam_beta1);
  bind("adam_beta2", job.adam_beta2);
  bind("adam_epsilon", job.adam_epsilon);
  bind("max_grad_norm", job.max_grad_norm);
  bind("beta", job.beta);
  bind("dpo_reduction", job.dpo_reduction);
}

void bind_surroundings(const Binder& bind, TrainingCommand& command) {
  bind("deepspeed", command.job.deepspeed);
  bind("ddp_timeout", command.job.ddp_timeout);
  bind("ddp_backend", command.ddp_backend);
  bind("device_map", command.device_map);
  bind("output_dir", command.job.output_dir);
  bind("add_version", command.job.add_version);
  bind("overwrite", command.job.overwrite);
  bind("resume_from_checkpoint", command.job.resume_from_checkpoint);
}

/// Other spellings of dtypes; what else there is stays, to be refused by name.
std::string dtype_name(const std::string& word) {
  std::string text = word.starts_with("torch.") ? word.substr(6) : word;
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text == "fp32" || text == "float") return "float32";
  if (text == "bf16") return "bfloat16";
  if (text == "fp16" || text == "half") return "float16";
  return text;
}

void unify_dtypes(train::DpoJobOptions& job) {
  if (job.torch_dtype) job.torch_dtype = dtype_name(*job.torch_dtype);
  if (job.torch_dtype == "auto") job.torch_dtype.reset();
  job.lora_dtype = dtype_name(job.lora_dtype);
  for (const auto& [flag, word] : {std::pair{"--torch_dtype", job.torch_dtype.value_or("")},
                                   std::pair{"--lora_dtype", job.lora_dtype}}) {
    if (word == "float16")
      throw NotSupported(detail::concat(flag, " float16 is not supported yet; take bfloat16"));
  }
}

/// true and false as transformers writes them.
void unify_resume(std::string& resume) {
  if (resume == "true" || resume == "True") resume = "auto";
  if (resume == "false" || resume == "False") resume = "none";
}

void note_evaluation(const FlagValues& values, TrainingCommand& command) {
  if (!values.has("eval_steps") || !command.job.val_dataset.empty() || command.job.split_dataset_ratio > 0)
    return;
  command.warnings.push_back(
      "--eval_steps is given, but neither --val_dataset nor --split_dataset_ratio: nothing is "
      "evaluated");
}

}  // namespace

TrainingCommand read_training_command(const FlagValues& values, const FlagTable& table) {
  TrainingCommand command;
  const Binder bind(values, table);
  bind_model(bind, command.job);
  bind_data(bind, command.job);
  bind_loop(bind, command.job);
  bind_optimizer(bind, command.job);
  bind_surroundings(bind, command);
  unify_dtypes(command.job);
  unify_resume(command.job.resume_from_checkpoint);
  const std::string no_effect = no_effect_line(values, table);
  if (!no_effect.empty()) command.notes.push_back(no_effect);
  if (!command.device_map.empty())
    command.notes.push_back("Without effect: --device_map; each rank has one device");
  note_evaluation(values, command);
  return command;
}

TrainingCommand parse_training_command(const std::vector<std::string>& arguments) {
  const FlagTable table = training_flags();
  return read_training_command(parse_flags(arguments, table), table);
}

std::string choose_device(const TrainingCommand& command, const DeviceSurvey& survey) {
  if (command.ddp_backend == "gloo") return "Training on the CPU: --ddp_backend gloo";
  if (survey.state == GpuState::kUsable) {
    throw NotSupported(
        detail::concat("this machine has ", survey.count,
                       " usable GPU(s), and training on GPUs is not "
                       "supported yet; set CUDA_VISIBLE_DEVICES= (empty) or give --ddp_backend gloo to "
                       "train on the CPU"));
  }
  APUS_CHECK(
      survey.state != GpuState::kUnusable, ConfigError, survey.reason,
      "; to train on the CPU all the same, set CUDA_VISIBLE_DEVICES= (empty) or give --ddp_backend gloo");
  APUS_CHECK(command.ddp_backend != "nccl", ConfigError, "--ddp_backend nccl needs a GPU: ", survey.reason,
             "; give --ddp_backend gloo to train on the CPU");
  return "Training on the CPU: " + survey.reason;
}

void check_world(const TrainingCommand& command, int world) {
  APUS_CHECK(command.device_map.empty() || world > 1, ConfigError, "--device_map ", command.device_map,
             ": one process is not spread over several GPUs; leave it out and start one rank a GPU, as in "
             "NPROC_PER_NODE=4 apus dpo ...");
}

}  // namespace apus::cli
