#include "cli/launch_command.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "apus/base/error.h"
#include "apus/cli/flag_values.h"
#include "cli/spawn.h"
#include "cli/training_run.h"

namespace apus::cli {
namespace {

constexpr int64_t kDefaultRestarts = 3;
constexpr int64_t kBeyond = 1'000'000'000;

int64_t integer_or(const FlagValues& values, std::string_view name, int64_t fallback) {
  const FlagValue* value = values.find(name);
  return value != nullptr ? value->integer() : fallback;
}

/// A count of processes, machines or tries, or a port; which numbers make sense is launch::check_counts' to
/// say.
int small_integer_or(const FlagValues& values, std::string_view name, int64_t fallback) {
  const int64_t value = integer_or(values, name, fallback);
  APUS_CHECK(value >= -kBeyond && value <= kBeyond, ConfigError, "--", name, " ", value,
             " is beyond every machine: expected a small number");
  return static_cast<int>(value);
}

int restarts(const FlagValues& values) {
  const FlagValue* restartable = values.find("restartable");
  const bool may = restartable != nullptr && restartable->boolean();
  const int count = small_integer_or(values, "max_restarts", may ? kDefaultRestarts : 0);
  APUS_CHECK(count == 0 || may, ConfigError, "--max_restarts ", count,
             " needs --restartable true, by which you say that the command resumes by itself");
  return count;
}

/// Ranks run what trains.
void require_training(const std::string& command) {
  if (trains(command)) return;
  APUS_CHECK(std::filesystem::path(command).filename() != "apus", ConfigError,
             "apus launch starts apus by itself: leave out \"", command,
             "\", as in: apus launch --nproc_per_node=4 -- dpo ...");
  constexpr std::array<std::string_view, 5> kOneProcess = {"data", "merge", "plan", "env", "export"};
  APUS_CHECK(std::ranges::find(kOneProcess, command) == kOneProcess.end(), ConfigError, "apus ", command,
             " is one process: call it without `apus launch`");
  if (command == "infer" || command == "megatron") {
    throw NotSupported(detail::concat("apus launch of `", command,
                                      "` is not supported yet; dpo, sft, pt, rlhf and train are"));
  }
  throw ConfigError(detail::concat("apus launch starts no `", command,
                                   "`: behind `--` stands what apus trains, dpo, sft, pt, rlhf or train; "
                                   "other programs are started by torchrun --no-python, srun or mpirun"));
}

}  // namespace

launch::LaunchOptions launch_options(const FlagValues& values, const Environment& environment) {
  launch::LaunchOptions options{.environment = environment};
  options.nproc_per_node =
      small_integer_or(values, "nproc_per_node", environment.get_int("NPROC_PER_NODE").value_or(1));
  options.nnodes = small_integer_or(values, "nnodes", 1);
  options.node_rank = small_integer_or(values, "node_rank", 0);
  options.master_port = small_integer_or(values, "master_port", 0);
  options.max_restarts = restarts(values);
  if (const FlagValue* address = values.find("master_addr")) options.master_addr = address->text();
  return options;
}

int run_launch(const Call& call) {
  const std::vector<std::string> all = call.flags();
  const auto end = std::ranges::find(all, "--");
  const bool forgets_dashes = end == all.end() && std::ranges::any_of(all, trains);
  const FlagValues values = forgets_dashes ? FlagValues() : parse_flags({all.begin(), end}, launch_flags());
  APUS_CHECK(end != all.end() && end + 1 != all.end(), ConfigError,
             "apus launch needs `--` and the command of each rank, as in: apus launch --nproc_per_node=4 -- "
             "dpo ...");
  const Call inner{.arguments = {end + 1, all.end()}, .environment = call.environment};
  require_training(inner.arguments.front());
  launch::LaunchOptions options = launch_options(values, call.environment);
  launch::check_counts(options);
  check_training(inner,
                 {.world = options.nnodes * options.nproc_per_node, .local_world = options.nproc_per_node});
  options.arguments = inner.arguments;
  return spawn_ranks(std::move(options));
}

}  // namespace apus::cli
