#include "cli/data_command.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/cli/training_command.h"
#include "apus/comm/launch_environment.h"
#include "apus/data/data_task.h"
#include "apus/train/data_look.h"
#include "cli/console.h"
#include "cli/data_text.h"
#include "cli/flag_groups.h"
#include "cli/model_folder.h"
#include "cli/terminal.h"

namespace apus::cli {
namespace {

/// Everything on standard error, so that standard output holds the report alone. Warnings about dropped rows
/// are kept back: the report has them.
class PreparationLog final : public Logger {
 public:
  void log(LogLevel level, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    if (level < LogLevel::kWarning) return console_->log(level, message);
    warnings_.emplace_back(message);
  }

  /// Says the warnings that no report has.
  void say_others(const train::DataLook& look) {
    std::vector<std::string> said = look.train.report.details();
    if (look.held_out) std::ranges::copy(look.held_out->report.details(), std::back_inserter(said));
    for (const std::string& warning : warnings_) {
      if (std::ranges::find(said, warning) == said.end()) console_->warning(warning);
    }
    warnings_.clear();
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Logger> console_ = make_console_logger({.stream = ConsoleStream::kStderr});
  std::vector<std::string> warnings_;
};

/// What the flags say is trained, else what the columns say.
data::DataTask task_of(const FlagValues& values, const train::DpoJobOptions& job) {
  if (values.has("rlhf_type")) return data::DataTask::kDpo;
  const data::ColumnMap columns =
      job.columns.empty() ? data::ColumnMap() : data::ColumnMap::parse(job.columns);
  return data::find_data_task(job.dataset.front(), columns);
}

}  // namespace

FlagTable data_command_flags() {
  std::vector<Flag> flags = training_flags().flags();
  const auto result = std::ranges::find(flags, "result_path", &Flag::name);
  APUS_ASSERT(result != flags.end(), "--result_path is not in the table");
  *result = acts("result_path", FlagKind::kText, "none", "file for the report as one JSON object");
  result->group = "report (apus data)";
  std::rotate(flags.begin(), result, result + 1);
  return FlagTable(std::move(flags));
}

int run_data(const Call& call) {
  const FlagTable table = data_command_flags();
  const FlagValues values = parse_flags(call.flags(), table);
  const comm::LaunchEnvironment launch = comm::resolve_launch(call.environment);
  if (launch.rank > 0) return 0;  // one report, however many ranks a launcher has started
  train::DpoJobOptions job =
      train::resolve_dpo_job(read_training_command(values, table).job, launch.world_size);
  job.model = resolve_model_folder(job.model, call.environment);
  const SystemClock clock;
  PreparationLog log;
  const train::DataLook look = train::look_at_data(job, {.task = task_of(values, job),
                                                         .world = launch.world_size,
                                                         .clock = &clock,
                                                         .logger = &log,
                                                         .cache_folder = cache_directory(call.environment)});
  log.say_others(look);
  if (const FlagValue* path = values.find("result_path");
      path && !says_default(*table.find("result_path"), *path))
    write_file_atomic(path->text(), dump_json(to_json(look), {.indent = 2}) + "\n");
  make_rank_console(0)->info(data_text(look, {.colours = colours_wanted(call.environment)}));
  return 0;
}

}  // namespace apus::cli
