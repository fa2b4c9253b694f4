#pragma once

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apus/comm/fake_communicator.h"
#include "tests/support/tiny_training.h"

namespace apus::testing {

/// A tiny model that is trained whole by SFT on one rank, and what happens in its runs.
struct SftBench {
  explicit SftBench(const TinyRun& run) : options(tiny_options(run)) {
    context = {.clock = &clock, .logger = &logger};
    train::TrainerCallbacks& callbacks = context.callbacks;
    callbacks.on_begin = [this](const train::TrainerState& state) { add("begin", state.global_step); };
    callbacks.on_step = [this](const train::StepReport& report) {
      add("step", report.step);
      reports.push_back(report);
    };
    callbacks.on_log = [this](const std::string&, const nlohmann::ordered_json& record) {
      lines.push_back(record);
    };
    callbacks.on_evaluate = [this](const train::EvaluationReport&, const train::TrainerState& state) {
      add("evaluate", state.global_step);
    };
    callbacks.on_save = [this](const train::TrainerState& state) {
      add("save", state.global_step);
      saved = state;
    };
    callbacks.on_end = [this](const train::RunSummary& summary) { add("end", summary.steps); };
  }

  void add(const std::string& what, int64_t step) { events.push_back(what + " " + std::to_string(step)); }
  train::Trainer trainer() { return {engine, std::make_shared<train::SftObjective>(), options, context}; }

  std::unique_ptr<comm::Communicator> dp = comm::make_fake_communicator({});
  std::unique_ptr<models::Qwen2> model = tiny_model({.job = Job::kFullSft});
  parallel::ShardedModel engine{*model, *dp, {}};
  SystemClock clock;
  CaptureLogger logger;
  train::TrainerOptions options;
  train::TrainerContext context;
  std::vector<std::string> events;
  std::vector<train::StepReport> reports;
  std::vector<nlohmann::ordered_json> lines;
  train::TrainerState saved;
};

/// Rows of files that are not there, one of which weighs more than a number can.
inline std::shared_ptr<const data::SftDataset> rows_with_infinity(int64_t count, int64_t bad) {
  const auto plain = tiny_rows(Job::kFullSft, count);
  std::vector<data::SftRow> rows;
  for (int64_t i = 0; i < count; ++i) {
    data::SftRow row = dynamic_cast<const data::SftDataset&>(*plain).row(i);
    row.place = {0, 10 + i};
    if (i == bad) row.weights.assign(row.labels.size(), std::numeric_limits<float>::infinity());
    rows.push_back(std::move(row));
  }
  return std::make_shared<data::SftDataset>(std::move(rows), data::DatasetOrigin{.files = {"train.jsonl"}});
}

}  // namespace apus::testing
