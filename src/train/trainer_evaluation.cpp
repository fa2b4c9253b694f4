// Evaluation: loss and metrics over all rows of a dataset, and what follows from them.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apus/base/error.h"
#include "apus/train/log_line.h"
#include "train/step_sums.h"
#include "train/trainer_run.h"

namespace apus::train {

EvaluationReport Trainer::evaluate(const data::Dataset& dataset) {
  EvaluationReport report;
  stopping_peers([&] { report = evaluate_rows(dataset); });
  return report;
}

EvaluationReport Trainer::evaluate_rows(const data::Dataset& dataset) {
  at::NoGradGuard no_grad;
  const Clock::Duration start = context_.clock->steady_now();
  const int64_t world = model_.dp().size();
  const int64_t rows = options_.eval_batch_rows;
  const int64_t rounds = (dataset.size() + rows * world - 1) / (rows * world);
  const std::vector<ObjectiveMetric>& metrics = objective_->metrics();
  std::vector<int64_t> weights = objective_->weights({});
  const size_t divisors = weights.size();
  StepSums sums(metrics.size());
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t first = std::min(dataset.size(), (round * world + model_.dp().rank()) * rows);
    std::vector<int64_t> ordinals(static_cast<size_t>(std::min(rows, dataset.size() - first)));
    std::iota(ordinals.begin(), ordinals.end(), first);
    const data::Batch batch = dataset.collate(ordinals, options_.collate);
    ObjectiveResult result = objective_->run(model_, batch);
    result.loss_sums.resize(divisors);
    sums.add(result.loss_sums, result.metric_sums);
    const std::vector<int64_t> own = objective_->weights(batch);
    for (size_t index = 0; index < divisors; ++index) weights[index] += own.at(index);
  }
  const StepSums::Values own = sums.read();
  // Weights and loss sums of each divisor, then the metrics' sums.
  std::vector<double> figures(2 * divisors, 0.0);
  for (size_t index = 0; index < divisors; ++index) figures[index] = static_cast<double>(weights[index]);
  for (size_t index = 0; index < own.losses.size(); ++index)
    figures[divisors + index % divisors] += own.losses[index];
  figures.insert(figures.end(), own.metric_sums.begin(), own.metric_sums.end());
  sum_over_ranks(model_.dp(), figures);

  for (size_t index = 0; index < divisors; ++index) weights[index] = static_cast<int64_t>(figures[index]);
  const std::vector<double> all = divisors_of(weights);
  EvaluationReport report;
  for (size_t index = 0; index < divisors; ++index) report.loss += figures[divisors + index] / all[index];
  report.metrics =
      means_of({figures.begin() + 2 * static_cast<std::ptrdiff_t>(divisors), figures.end()}, metrics, all);
  report.metric_weights = metric_weights(metrics, weights);
  for (int64_t ordinal = 0; ordinal < dataset.size(); ++ordinal) report.rows += dataset.rows_in(ordinal);
  report.seconds = seconds_since(*context_.clock, start);
  return report;
}

void Trainer::evaluate_held_out(Run& run) {
  const EvaluationReport report = evaluate_rows(*run.held_out);
  TrainerState& state = run.state;
  // What comes before the first step is no model of this run's.
  if (state.global_step > 0) run.judge.judge(report, state.global_step, state.best);
  log_evaluation(run, report);
  if (context_.callbacks.on_evaluate) context_.callbacks.on_evaluate(report, state);
  run.gave_up = run.judge.gives_up(state.best);
  if (!run.gave_up || model_.dp().rank() != 0) return;
  context_.logger->info(detail::concat("Stopping early: ", state.best->metric,
                                       " has made no progress in the last ", state.best->without_progress,
                                       " evaluations; the best was ", state.best->value, " at step ",
                                       state.best->step));
}

}  // namespace apus::train
