#include "apus/cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <functional>

#include "apus/base/error.h"
#include "apus/base/nearest_name.h"
#include "apus/cli/flag_table.h"
#include "cli/console.h"
#include "cli/data_command.h"
#include "cli/env_command.h"
#include "cli/error_text.h"
#include "cli/merge_command.h"
#include "cli/output.h"
#include "cli/plan_command.h"
#include "cli/training_run.h"

namespace apus::cli {
namespace {

/// One word that may follow `apus`.
struct Command {
  std::string name;
  std::string summary;
  std::function<int(const Call&)> run;  ///< none: not built yet
  std::function<FlagTable()> flags;
};

std::function<FlagTable()> flags_for(const char* task) {
  return [task] { return training_flags(task); };
}

FlagTable all_training_flags() {
  return training_flags();
}

std::vector<Command> training_commands() {
  return {{"dpo", "Trains a model on preference pairs (DPO).", run_training, flags_for("dpo")},
          {"sft", "Trains a model on conversations.", run_training, flags_for("sft")},
          {"pt", "Trains a model on plain text.", run_training, flags_for("pt")},
          {"rlhf", "The same as `apus dpo`, with --rlhf_type dpo.", run_training, flags_for("dpo")},
          {"train",
           "Trains what the data's columns say: prompt, chosen and rejected mean DPO, messages SFT, text pt.",
           run_training, all_training_flags}};
}

std::vector<Command> commands() {
  std::vector<Command> all = training_commands();
  for (Command& command : std::vector<Command>{
           {"data",
            "Looks at what --dataset holds before anything is trained: counts, lengths, first rows, batches.",
            run_data, data_command_flags},
           {"launch", "Starts the ranks of this machine: apus launch --nproc_per_node=4 -- dpo ...",
            run_launch, launch_flags},
           {"plan",
            "Memory and time of a job before it is launched, with its flags: apus plan ... --card A100-40GB "
            "--world 4",
            run_plan, plan_flags},
           {"env", "GPUs, driver, processors, memory, limits and variables of this machine.", run_env,
            env_flags},
           {"infer", "Answers.", nullptr, infer_flags},
           {"merge", "Puts an adapter into its base: a complete model, apus merge --adapters CHECKPOINT",
            run_merge, merge_flags},
           {"export", "The same as `apus merge`, with --merge_lora true.", run_export, export_flags},
           {"megatron", "Training under Megatron's flag names.", nullptr, nullptr}}) {
    all.push_back(std::move(command));
  }
  return all;
}

std::string usage() {
  std::string text = "Usage: apus COMMAND [flags]; apus COMMAND --help lists the flags; apus --version\n\n";
  for (const Command& command : commands()) {
    std::string name = "  " + command.name;
    name.resize(12, ' ');
    text += name + command.summary + (command.run ? "\n" : " [not supported yet]\n");
  }
  return text +
         "\nSeveral ranks: NPROC_PER_NODE=4 apus dpo ..., or torchrun --no-python --nproc_per_node=4 apus "
         "dpo ...";
}

/// Whether the command's own flags ask for help; behind `--` they are another command's.
bool asks_for_help(const std::vector<std::string>& arguments) {
  const auto end = std::ranges::find(arguments, "--");
  return std::any_of(arguments.begin(), end,
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

int run_command(const Command& command, const Call& call) {
  if (!command.run) throw NotSupported("apus " + command.name + " is not supported yet");
  if (!asks_for_help(call.arguments)) return command.run(call);
  write_output(help_text(command.name, command.summary, command.flags()));
  return 0;
}

/// For a word that takes no flags.
void refuse_more(const Call& call) {
  if (call.arguments.size() == 1) return;
  const std::string& more = call.arguments[1];
  throw ConfigError(detail::concat(more.starts_with("-") ? "unknown flag " : "unknown word ", more,
                                   ": `apus ", call.arguments.front(), "` takes none"));
}

int dispatch(const Call& call) {
  const std::string& word = call.arguments.front();
  if (word == "--version" || word == "version") {
    refuse_more(call);
    write_output(std::string("apus ") + kVersion);
    return 0;
  }
  if (word == "--help" || word == "-h" || word == "help") {
    write_output(usage());
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == word) return run_command(command, call);
    names.push_back(command.name);
  }
  throw ConfigError(detail::concat("unknown command `", word, "`", did_you_mean(word, names),
                                   "; `apus --help` lists them"));
}

}  // namespace

int exit_code_of(const std::exception& error) {
  const bool usage_error = dynamic_cast<const ConfigError*>(&error) != nullptr ||
                           dynamic_cast<const NotSupported*>(&error) != nullptr;
  return usage_error ? 2 : 1;
}

int run_program(const std::vector<std::string>& arguments, const Environment& environment) {
  hold_standard_streams();
  const std::shared_ptr<Logger> console = make_rank_console(0);
  try {
    if (arguments.empty()) {
      write_fully(STDERR_FILENO, "standard error", usage() + "\n");
      return 2;
    }
    return dispatch({.arguments = arguments, .environment = environment});
  } catch (const std::exception& error) {
    console->error(error_text(error));
    return exit_code_of(error);
  }
}

}  // namespace apus::cli
