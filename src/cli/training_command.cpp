#include "apus/cli/training_command.h"

#include <algorithm>
#include <cctype>

#include "apus/base/error.h"
#include "apus/train/job_fields.h"

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
    APUS_ASSERT(flag != nullptr, "--", name, " is not in the table");
    if (flag->status == FlagStatus::kNotYet)
      return;  // given otherwise than at its default, it has been refused
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
  static void put(const Flag& flag, const FlagValue& value, std::vector<double>& field) {
    field.clear();
    for (const std::string& word : value.list(flag.kind)) {
      field.push_back(FlagValue{.shown = value.shown, .words = {word}}.number());
    }
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

/// Of what is not computed in: sums and files, which float16 would make overflow.
void unify_dtype(const char* flag, std::string& dtype) {
  dtype = dtype_name(dtype);
  if (dtype == "float16")
    throw NotSupported(
        detail::concat(flag, " float16 is not supported: values overflow in it; take bfloat16"));
}

void unify_dtype(std::optional<std::string>& dtype) {
  if (dtype) dtype = dtype_name(*dtype);
  if (dtype == "auto") dtype.reset();
}

void unify_dtypes(train::JobOptions& job) {
  unify_dtype(job.torch_dtype);
  unify_dtype(job.base_dtype);
  unify_dtype("--lora_dtype", job.lora_dtype);
  unify_dtype("--grad_accum_dtype", job.grad_accum_dtype);
  unify_dtype("--reduce_dtype", job.reduce_dtype);
}

/// transformers' names for variants of one AdamW, which differ in speed there.
void unify_optimizer(std::string& optim) {
  if (optim.starts_with("adamw_") && optim != "adamw_bf16") optim = "adamw";
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

/// Packs lie end to end; only the flags tell whether padding_free was switched off or left alone.
void check_packing(const FlagValues& values, const FlagTable& table, const train::JobOptions& job) {
  const FlagValue* given = values.find("padding_free");
  const bool switched_off =
      given != nullptr && !says_default(*table.find("padding_free"), *given) && job.padding_free == false;
  APUS_CHECK(!job.packing || !switched_off, ConfigError,
             "--packing true and --padding_free false contradict each other: rows of a pack lie end to end, "
             "without padding; leave one of them out");
}

/// Whether a word that is the flag's default is a value all the same: a DeepSpeed file may say another one.
bool names_value(const Flag& flag) {
  return flag.group == "optimiser" && flag.kind == FlagKind::kText && flag.default_text != "none";
}

/// What was written, but for words that mean what happens anyway.
std::set<std::string> given_flags(const FlagValues& values, const FlagTable& table) {
  std::set<std::string> given;
  for (const auto& [name, value] : values.all()) {
    const Flag& flag = *table.find(name);
    if (flag.status == FlagStatus::kNoEffect) continue;
    if (!says_default(flag, value) || names_value(flag)) given.insert(name);
  }
  return given;
}

std::string commands_of(const Flag& flag) {
  std::string text;
  for (const std::string& task : flag.tasks) text += (text.empty() ? "apus " : ", apus ") + task;
  return text;
}

}  // namespace

std::string task_of_command(std::string_view command) {
  if (command == "rlhf") return "dpo";
  return command == "dpo" || command == "sft" || command == "pt" ? std::string(command) : "";
}

TrainingCommand read_training_command(const FlagValues& values, const FlagTable& table) {
  TrainingCommand command;
  const Binder bind(values, table);
  train::visit_fields(command.job, bind);
  bind("ddp_backend", command.ddp_backend);
  bind("device_map", command.device_map);
  command.job.given = given_flags(values, table);
  check_packing(values, table, command.job);
  unify_dtypes(command.job);
  unify_optimizer(command.job.optim);
  unify_resume(command.job.resume_from_checkpoint);
  const std::string no_effect = no_effect_line(values, table);
  if (!no_effect.empty()) command.notes.push_back(no_effect);
  if (!command.device_map.empty())
    command.notes.push_back("Without effect: --device_map; each rank has one device");
  note_evaluation(values, command);
  return command;
}

void settle_task(TrainingCommand& command, const FlagValues& values, const FlagTable& table,
                 const std::string& task) {
  command.job.task = task;
  const std::string& train_type = command.job.train_type;
  for (const auto& [name, value] : values.all()) {
    const Flag& flag = *table.find(name);
    if (says_default(flag, value) || same_as_default(flag, value)) continue;
    APUS_CHECK(flag.serves(task), ConfigError, value.shown, " ", value.text(), " is for ", commands_of(flag),
               ", and this trains ", task, ", which has no use for it; leave it out");
    APUS_CHECK(flag.train_type.empty() || flag.train_type == train_type, ConfigError, value.shown, " ",
               value.text(), " is for --train_type ", flag.train_type, ", and this is --train_type ",
               train_type, ", which has no use for it; leave it out");
  }
}

TrainingCommand parse_training_command(const std::vector<std::string>& arguments, const std::string& task) {
  const FlagTable table = training_flags();
  const FlagValues values = parse_flags(arguments, table);
  TrainingCommand command = read_training_command(values, table);
  settle_task(command, values, table, task);
  return command;
}

void check_world(const TrainingCommand& command, int world) {
  APUS_CHECK(command.device_map.empty() || world > 1, ConfigError, "--device_map ", command.device_map,
             ": one process is not spread over several GPUs; leave it out and start one rank a GPU, as in "
             "NPROC_PER_NODE=4 apus dpo ...");
}

}  // namespace apus::cli
