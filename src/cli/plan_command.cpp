#include "cli/plan_command.h"
#include "cli/choose_device.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/log.h"
#include "apus/cli/training_command.h"
#include "apus/comm/launch_environment.h"
#include "apus/data/dataset_source.h"
#include "apus/models/model_spec.h"
#include "apus/train/data_look.h"
#include "apus/train/job_settings.h"
#include "apus/train/memory_plan_job.h"
#include "cli/flag_groups.h"
#include "cli/job_task.h"
#include "cli/model_folder.h"
#include "cli/output.h"
#include "cli/report_file.h"
#include "cli/terminal.h"

namespace apus::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMostRanks = 100'000;

bool is_there(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

/// The first word of --dataset whose file is not there.
std::optional<std::string> absent_file(const train::JobOptions& job) {
  for (const std::string& file : job.dataset)
    if (!is_there(data::parse_dataset_source(file).path)) return file;
  return std::nullopt;
}

bool has_data(const train::JobOptions& job) {
  return !job.dataset.empty() && !absent_file(job);
}

bool has_tokenizer(const train::JobOptions& job) {
  const fs::path folder = job.model;
  return is_there(folder / "tokenizer.json") || is_there(folder / "tokenizer.model");
}

/// The task that was named, else that of the data, else DPO.
std::string task_of(const std::string& named, const train::JobOptions& job) {
  if (!named.empty()) return named;
  if (job.given.contains("rlhf_type") || !has_data(job)) return "dpo";
  return task_of_data(job);
}

/// A flag's whole number within bounds; `fallback` where it is not given.
int count_of(const FlagValues& values, const FlagTable& table, const char* name, int fallback) {
  const FlagValue* value = values.find(name);
  if (value == nullptr || says_default(*table.find(name), *value)) return fallback;
  const int64_t count = value->integer();
  APUS_CHECK(count >= 1 && count <= kMostRanks, ConfigError, value->shown, " ", count, ": expected 1 to ",
             kMostRanks);
  return static_cast<int>(count);
}

/// One call of the command.
class Planner {
 public:
  Planner(const Call& call, const std::string& task, const std::vector<std::string>& flags)
      : call_(call), table_(plan_flags()), values_(parse_flags(flags, table_)) {
    command_ = read_training_command(values_, table_);
    job().model = resolve_model_folder(job().model, call.environment);
    settle_task(command_, values_, table_, task_of(task, job()));
    models::register_builtin_models(registry_);
    const comm::LaunchEnvironment launch = comm::resolve_launch(call.environment);
    context_.world = count_of(values_, table_, "world", launch.world_size);
    context_.registry = &registry_;
    context_.cluster.cards_per_host =
        count_of(values_, table_, "cards_per_host", context_.cluster.cards_per_host);
    if (const FlagValue* card = given("card")) context_.card = train::find_card(card->text());
    context_.device = context_.card ? train::PlanDevice::kCard : train::PlanDevice::kHost;
    if (!context_.card) take_own_gpu(read_device_facts(call.environment));
  }

  void run() {
    for (const std::string& note : command_.notes) log_->info(harmless(note));
    const std::optional<ReportFile> report = report_file();
    const std::string lengths = read_lengths();
    const train::JobPlan plan = make_plan();
    const auto ranked = plan.card ? train::rank_plans(plan) : std::vector<train::RankedPlan>();
    nlohmann::ordered_json json = train::to_json(plan);
    if (plan.card) json["ranked"] = train::to_json(ranked);
    if (report) report->write(dump_json(json, {.indent = 2}) + "\n");
    write_output(harmless(text_of(plan, ranked, lengths)));
  }

 private:
  train::JobOptions& job() { return command_.job; }

  train::JobDevice device() const {
    return context_.device == train::PlanDevice::kCard ? train::JobDevice::kGpu : train::JobDevice::kCpu;
  }

  const FlagValue* given(const char* name) const {
    const FlagValue* value = values_.find(name);
    return value != nullptr && !says_default(*table_.find(name), *value) ? value : nullptr;
  }

  /// Without --card: the GPU that a run would take here, if there is one.
  void take_own_gpu(const DeviceFacts& facts) {
    if (likely_device(command_, facts) == train::JobDevice::kCpu || facts.gpus.empty()) return;
    context_.device = train::PlanDevice::kCard;
    context_.device_bytes = facts.gpus.front().memory_bytes;
    try {
      context_.card = train::find_card(facts.gpus.front().name);
      context_.card->memory_bytes = *context_.device_bytes;
    } catch (const ConfigError&) {
      log_->info("No data sheet is known of " + facts.gpus.front().name + ": memory is planned, time is not");
    }
  }

  std::optional<ReportFile> report_file() {
    const FlagValue* path = given("result_path");
    if (path == nullptr) return std::nullopt;
    ReportInputs inputs{.folders = {job().model}};
    for (const std::string& file : job().dataset)
      inputs.files.push_back(data::parse_dataset_source(file).path);
    return ReportFile(path->text(), inputs);
  }

  /// Where the lengths come from, for people.
  std::string read_lengths() {
    if (const auto absent = absent_file(job()))
      return "Lengths: every row is taken to be as long as --max_length allows, because there is no file " +
             *absent + " (--dataset)";
    if (job().dataset.empty() || !has_tokenizer(job()))
      return "Lengths: every row is taken to be as long as --max_length allows; with --dataset and the "
             "model's "
             "tokenizer there, they are those of the rows";
    const train::DataLook look = train::look_at_data(train::resolve_job(job(), context_.world, device()),
                                                     {.task = data_task_of(job()),
                                                      .world = context_.world,
                                                      .clock = &clock_,
                                                      .logger = &silent_,
                                                      .cache_folder = cache_directory(call_.environment),
                                                      .samples = 0});
    if (!look.error.empty()) throw Error(look.error);
    context_.rows = train::profile_rows(look.row_lengths);
    return detail::concat("Lengths: those of ", look.train.lengths.sequences,
                          " sequences of --dataset, at most ", look.train.lengths.longest, " tokens");
  }

  /// On CPUs a rank's share of the memory depends on what all ranks map together, which a first plan says.
  train::JobPlan make_plan() {
    if (given("host_memory_gib") != nullptr) {
      context_.host_bytes = int64_t{count_of(values_, table_, "host_memory_gib", 0)} << 30;
    } else if (given("card") == nullptr) {
      context_.host_bytes = train::host_share_bytes(1, 0);
    }
    train::JobPlan plan = train::plan_job(job(), context_);
    if (context_.device == train::PlanDevice::kCard) return plan;
    context_.device_bytes = train::host_share_bytes(context_.world, plan.memory.mapped_bytes);
    return train::plan_job(job(), context_);
  }

  std::string text_of(const train::JobPlan& plan, const std::vector<train::RankedPlan>& ranked,
                      const std::string& lengths) const {
    const std::string note = train::strategy_note(command_.job);
    std::string text = "Task: " + command_.job.task + "\n" + lengths + "\n" +
                       (note.empty() ? "" : note + "\n") + "\n" + train::to_text(plan);
    if (plan.card) return text + "\n\n" + train::to_text(ranked, plan);
    if (context_.device == train::PlanDevice::kCard) return text;
    return text +
           "\n\nThis is for ranks on this machine's processors; --card A100-40GB --world 4 plans for cards.";
  }

  const Call& call_;
  FlagTable table_;
  FlagValues values_;
  TrainingCommand command_;
  models::ModelRegistry registry_;
  train::PlanContext context_;
  SystemClock clock_;
  NullLogger silent_;
  std::shared_ptr<Logger> log_ = make_console_logger({.stream = ConsoleStream::kStderr});
};

}  // namespace

FlagTable plan_flags() {
  using enum FlagKind;
  std::vector<Flag> flags = grouped(
      "plan",
      {acts("card", kText, "none", "plan for this kind of GPU, as in A100-40GB; none: this machine's CPUs"),
       acts("world", kInteger, "NPROC_PER_NODE", "ranks of the job"),
       acts("cards_per_host", kInteger, "8", "GPUs of a machine; others are reached over the network"),
       acts("host_memory_gib", kInteger, "this machine's",
            "host memory of a machine of --card's, for what is offloaded"),
       acts("result_path", kText, "none", "file for the plan as one JSON object")});
  const FlagTable training = training_flags();
  flags.insert(flags.end(), training.flags().begin(), training.flags().end());
  return FlagTable(std::move(flags));
}

int run_plan(const Call& call) {
  std::vector<std::string> flags = call.flags();
  std::string task;
  if (!flags.empty() && !flags.front().starts_with("--")) {
    task = task_of_command(flags.front());
    APUS_CHECK(!task.empty() || flags.front() == "train", ConfigError, "apus plan ", flags.front(),
               ": expected dpo, sft, pt, rlhf or train, or the flags at once");
    flags.erase(flags.begin());
  }
  Planner(call, task, flags).run();
  return 0;
}

}  // namespace apus::cli
