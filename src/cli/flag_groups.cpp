#include "cli/flag_groups.h"

#include <utility>

namespace apus::cli {

Flag acts(std::string name, FlagKind kind, std::string default_text, std::string help) {
  return {.name = std::move(name),
          .kind = kind,
          .default_text = std::move(default_text),
          .help = std::move(help)};
}

Flag not_yet(std::string name, FlagKind kind, std::string default_text, std::string help,
             std::vector<std::string> words) {
  return {.name = std::move(name),
          .kind = kind,
          .status = FlagStatus::kNotYet,
          .default_text = std::move(default_text),
          .help = std::move(help),
          .words = std::move(words)};
}

Flag also(std::vector<std::string> aliases, Flag flag) {
  flag.aliases = std::move(aliases);
  return flag;
}

Flag among(std::vector<std::string> words, Flag flag) {
  flag.words = std::move(words);
  return flag;
}

Flag for_tasks(std::vector<std::string> tasks, Flag flag) {
  flag.tasks = std::move(tasks);
  return flag;
}

std::vector<Flag> for_train_type(const std::string& train_type, std::vector<Flag> flags) {
  for (Flag& flag : flags) flag.train_type = train_type;
  return flags;
}

std::vector<Flag> grouped(const std::string& heading, std::vector<Flag> flags) {
  for (Flag& flag : flags) flag.group = heading;
  return flags;
}

FlagTable training_flags() {
  std::vector<Flag> all;
  for (const auto& group :
       {model_flags(), lora_flags(), full_flags(), data_flags(), loop_flags(), optimizer_flags(),
        preference_flags(), strategy_flags(), quantization_flags(), output_flags(), python_flags()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return FlagTable(std::move(all));
}

FlagTable training_flags(std::string_view task) {
  std::vector<Flag> flags = training_flags().flags();
  std::erase_if(flags, [task](const Flag& flag) { return !flag.serves(task); });
  return FlagTable(std::move(flags));
}

FlagTable infer_flags() {
  return FlagTable(inference_flags());
}

FlagTable launch_flags() {
  using enum FlagKind;
  return FlagTable(grouped(
      "launch",
      {acts("nproc_per_node", kInteger, "1", "ranks to start on this machine; default: NPROC_PER_NODE"),
       acts("nnodes", kInteger, "1", "machines of the job; run the same command on each"),
       acts("node_rank", kInteger, "0", "which of them this is, from 0"),
       acts("master_addr", kText, "127.0.0.1", "host name or address of machine 0"),
       acts("master_port", kInteger, "free", "port where the ranks meet (several machines: 29500)"),
       acts("max_restarts", kInteger, "0",
            "start all ranks again so often after a failure (3 if --restartable)"),
       acts("restartable", kBoolean, "false", "the command resumes by itself, as apus dpo does")}));
}

}  // namespace apus::cli
