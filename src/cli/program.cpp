#include "apus/cli/program.h"

#include <algorithm>
#include <functional>

#include "apus/base/error.h"
#include "apus/base/nearest_name.h"
#include "apus/cli/flag_table.h"
#include "cli/console.h"
#include "cli/data_command.h"
#include "cli/output.h"
#include "cli/training_run.h"

namespace apus::cli {
namespace {

/// One word that may follow `apus`.
struct Command {
  std::string name;
  std::string summary;
  std::function<int(const Call&)> run;  ///< none: not built yet
  std::function<FlagTable()> flags = training_flags;
};

std::vector<Command> commands() {
  return {
      {"dpo", "Trains a model on preference pairs (DPO) with LoRA.", run_training},
      {"rlhf", "The same as `apus dpo`, with --rlhf_type dpo.", run_training},
      {"train", "Trains what the data's columns say: prompt, chosen and rejected mean DPO.", run_training},
      {"data",
       "Looks at what --dataset holds before anything is trained: counts, lengths, first rows, batches.",
       run_data, data_command_flags},
      {"launch", "Starts the ranks of this machine: apus launch --nproc_per_node=4 -- dpo ...", run_launch,
       launch_flags},
      {"sft", "Trains a model on conversations.", nullptr},
      {"pt", "Trains a model on plain text.", nullptr},
      {"infer", "Answers.", nullptr},
      {"merge", "Puts an adapter into its base.", nullptr},
      {"export", "Merges or converts.", nullptr},
      {"plan", "Memory and time before a launch.", nullptr},
      {"env", "GPUs, driver and limits of this machine.", nullptr},
      {"megatron", "Training under Megatron's flag names.", nullptr}};
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

int dispatch(const Call& call) {
  const std::string& word = call.arguments.front();
  if (word == "--version" || word == "version") {
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
  if (arguments.empty()) {
    console->error(usage());
    return 2;
  }
  try {
    return dispatch({.arguments = arguments, .environment = environment});
  } catch (const std::exception& error) {
    console->error(error.what());
    return exit_code_of(error);
  }
}

}  // namespace apus::cli
