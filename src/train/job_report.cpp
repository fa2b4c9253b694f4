#include "train/job_report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "apus/base/json.h"
#include "apus/train/curve.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

std::optional<ReportedValue> value_of(const CurvePoint& point) {
  if (!std::isfinite(point.value)) return std::nullopt;
  return ReportedValue{.value = point.value, .step = point.step};
}

/// The last epoch and the largest memory that the log has.
void add_log_figures(RunReport& report, const fs::path& run_dir) {
  std::ifstream lines(run_dir / "logging.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) continue;
    report.epochs = record.value("epoch", report.epochs);
    const double bytes = record.value("memory(GiB)", 0.0) * static_cast<double>(int64_t{1} << 30);
    report.memory_bytes = std::max(report.memory_bytes, static_cast<int64_t>(bytes));
  }
}

/// First, last and best figures, over all attempts of the run.
void add_figures(RunReport& report, const fs::path& run_dir) {
  add_log_figures(report, run_dir);
  for (const CurvePanel& panel : read_curves(run_dir / "logging.jsonl")) {
    for (const CurveSeries& series : panel.series) {
      if (series.points.empty()) continue;
      if (series.name == "loss") {
        report.first_loss = value_of(series.points.front());
        report.last_loss = value_of(series.points.back());
        report.loss_curve = sparkline(series.points);
      }
      if (series.name == "eval_loss") report.last_evaluation = value_of(series.points.back());
    }
  }
}

void add_places(RunReport& report, const fs::path& run_dir, const fs::path& checkpoint,
                const JobOptions& options) {
  if (!checkpoint.empty()) {
    report.places.emplace_back(options.train_type == "full" ? "model" : "adapter", checkpoint.string());
  }
  report.places.emplace_back("log", (run_dir / "logging.jsonl").string());
  for (const auto& [name, file] : {std::pair{"curve", "loss.png"}, std::pair{"tensorboard", "runs"}}) {
    std::error_code absent;
    if (fs::exists(run_dir / file, absent)) report.places.emplace_back(name, (run_dir / file).string());
  }
}

/// What to do with the result: an adapter is merged, a model is loaded.
void add_next(RunReport& report, const fs::path& checkpoint, const fs::path& merged,
              const JobOptions& options) {
  if (!merged.empty()) {
    report.places.emplace_back("merged model", merged.string());
    report.next = load_hint(merged.string());
  } else if (!checkpoint.empty()) {
    report.next =
        options.train_type == "full" ? load_hint(checkpoint.string()) : merge_command(checkpoint.string());
  }
}

/// The model that an earlier attempt has merged; empty: there is none.
fs::path merged_model(const fs::path& run_dir, const JobOptions& options) {
  const fs::path merged = run_dir / "merges";
  std::error_code absent;
  return options.merge_lora && fs::exists(merged / "config.json", absent) ? merged : fs::path();
}

}  // namespace

ReportedRows reported_rows(const std::string& name, const data::RowReport& report) {
  ReportedRows rows{.name = name,
                    .input = report.input(),
                    .whole = report.whole(),
                    .truncated = report.truncated(),
                    .held_out = report.held_out()};
  for (const auto& [kind, reason] : report.reasons()) rows.dropped.emplace_back(kind, reason.count);
  return rows;
}

RunReport report_of(const JobEnd& end) {
  RunReport report{.steps = end.result.steps,
                   .max_steps = end.state.max_steps,
                   .finished = end.result.finished,
                   .best_metric = end.options->metric_for_best_model,
                   .seconds = end.state.elapsed_seconds,
                   .tokens = end.state.tokens,
                   .ranks = end.ranks};
  if (end.state.loss_scaler) report.skipped = end.state.loss_scaler->skipped;
  add_figures(report, end.run_dir);
  if (end.result.best)
    report.best = ReportedValue{.value = end.result.best->value, .step = end.result.best->step};
  report.rows.push_back(reported_rows("training", end.rows->unpacked->origin().report));
  if (end.rows->validation.rows()) {
    report.rows.push_back(reported_rows("evaluation", end.rows->validation.rows()->origin().report));
  }
  add_places(report, end.run_dir, end.checkpoint, *end.options);
  add_next(report, end.checkpoint, end.merged, *end.options);
  return report;
}

RunReport report_of_complete(const fs::path& run_dir, const fs::path& checkpoint, const JobOptions& options,
                             int64_t steps) {
  RunReport report{.steps = steps, .max_steps = steps};
  const fs::path path = checkpoint / "trainer_state.json";
  std::error_code absent;
  if (fs::exists(path, absent)) {
    const TrainerState state = trainer_state_from_json(load_json_file(path), path.string());
    report.seconds = state.elapsed_seconds;
    report.tokens = state.tokens;
    if (state.loss_scaler) report.skipped = state.loss_scaler->skipped;
  }
  add_figures(report, run_dir);
  add_places(report, run_dir, checkpoint, options);
  add_next(report, checkpoint, merged_model(run_dir, options), options);
  return report;
}

}  // namespace apus::train
