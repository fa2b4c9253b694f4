#include "cli/data_command.h"
#include "cli/choose_device.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/cli/training_command.h"
#include "apus/comm/launch_environment.h"
#include "apus/data/data_task.h"
#include "apus/data/dataset_source.h"
#include "apus/train/data_look.h"
#include "cli/data_text.h"
#include "cli/flag_groups.h"
#include "cli/job_task.h"
#include "cli/model_folder.h"
#include "cli/output.h"
#include "cli/report_file.h"
#include "cli/terminal.h"

namespace apus::cli {
namespace {

/// Everything on standard error, so that standard output holds the report alone. Warnings about dropped rows
/// are kept back: the report has them.
class PreparationLog final : public Logger {
 public:
  void log(LogLevel level, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    if (level < LogLevel::kWarning) return console_->log(level, harmless(message));
    warnings_.emplace_back(message);
  }

  /// Says the warnings that no report has.
  void say_others(const train::DataLook& look) {
    std::vector<std::string> said = look.train.report.details();
    if (look.held_out) std::ranges::copy(look.held_out->report.details(), std::back_inserter(said));
    for (const std::string& warning : warnings_) {
      if (std::ranges::find(said, warning) == said.end()) console_->warning(harmless(warning));
    }
    warnings_.clear();
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Logger> console_ = make_console_logger({.stream = ConsoleStream::kStderr});
  std::vector<std::string> warnings_;
};

/// What the flags say is trained, else what the columns say.
data::DataTask task_of(const FlagValues& values, const train::JobOptions& job) {
  if (values.has("rlhf_type")) return data::DataTask::kDpo;
  return data_task_of(job);
}

/// Where --result_path wants the report; none: nowhere.
std::optional<ReportFile> report_file_of(const FlagValues& values, const FlagTable& table,
                                         const train::JobOptions& job) {
  const FlagValue* path = values.find("result_path");
  if (!path || says_default(*table.find("result_path"), *path)) return std::nullopt;
  ReportInputs inputs{.folders = {job.model}};
  for (const auto* files : {&job.dataset, &job.val_dataset})
    for (const std::string& file : *files) inputs.files.push_back(data::parse_dataset_source(file).path);
  if (const FlagValue* config = values.find("config")) inputs.files.emplace_back(config->text());
  return ReportFile(path->text(), inputs);
}

void write_json(const std::optional<ReportFile>& report, const nlohmann::ordered_json& json) {
  if (report) report->write(dump_json(json, {.indent = 2}) + "\n");
}

/// An older report does not stay where there is none now.
template <typename Look>
train::DataLook look_or_report_error(const std::optional<ReportFile>& report, const Look& look) {
  try {
    return look();
  } catch (const std::exception& error) {
    write_json(report, {{"error", harmless(error.what())}});
    throw;
  }
}

}  // namespace

FlagTable data_command_flags() {
  std::vector<Flag> flags =
      grouped("report (apus data)",
              {acts("result_path", FlagKind::kText, "none", "file for the report as one JSON object")});
  const FlagTable training = training_flags();
  flags.insert(flags.end(), training.flags().begin(), training.flags().end());
  return FlagTable(std::move(flags));
}

int run_data(const Call& call) {
  const FlagTable table = data_command_flags();
  const FlagValues values = parse_flags(call.flags(), table);
  const comm::LaunchEnvironment launch = comm::resolve_launch(call.environment);
  if (launch.rank > 0) return 0;  // one report, however many ranks a launcher has started
  TrainingCommand command = read_training_command(values, table);
  command.job.model = resolve_model_folder(command.job.model, call.environment);
  const std::optional<ReportFile> report = report_file_of(values, table, command.job);
  const SystemClock clock;
  PreparationLog log;
  for (const std::string& note : command.notes) log.info(note);
  for (const std::string& warning : command.warnings) log.warning(warning);
  const train::DataLook look = look_or_report_error(report, [&] {
    const data::DataTask task = task_of(values, command.job);
    settle_task(command, values, table, job_task_of(task));
    const train::JobDevice device = likely_device(command, read_device_facts(call.environment));
    return train::look_at_data(train::resolve_job(command.job, launch.world_size, device),
                               {.task = task,
                                .world = launch.world_size,
                                .clock = &clock,
                                .logger = &log,
                                .cache_folder = cache_directory(call.environment)});
  });
  log.say_others(look);
  write_json(report, to_json(look));
  write_output(data_text(look, {.colours = colours_wanted(call.environment)}));
  if (!look.error.empty()) throw Error(look.error);
  return 0;
}

}  // namespace apus::cli
