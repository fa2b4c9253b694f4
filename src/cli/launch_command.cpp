#include "cli/launch_command.h"

#include <algorithm>

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
  const FlagValues values = parse_flags({all.begin(), end}, launch_flags());
  APUS_CHECK(end != all.end() && end + 1 != all.end(), ConfigError,
             "apus launch needs `--` and the command of each rank, as in: apus launch --nproc_per_node=4 -- "
             "dpo ...");
  const Call inner{.arguments = {end + 1, all.end()}, .environment = call.environment};
  const std::string& command = inner.arguments.front();
  if (!trains(command)) {
    const bool has_one_process = command == "data" || command == "merge" || command == "plan" ||
                                 command == "env" || command == "export";
    APUS_CHECK(!has_one_process, ConfigError, "apus ", command,
               " is one process: call it without `apus launch`");
    throw NotSupported(detail::concat("apus launch of `", command,
                                      "` is not supported yet; dpo, sft, pt, rlhf and train are"));
  }
  launch::LaunchOptions options = launch_options(values, call.environment);
  launch::check_counts(options);
  check_training(inner, options.nnodes * options.nproc_per_node);
  options.arguments = inner.arguments;
  return spawn_ranks(std::move(options));
}

}  // namespace apus::cli
