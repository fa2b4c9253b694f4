// Log lines of a run.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apus/memory/device_memory.h"
#include "apus/train/log_line.h"
#include "train/on_device.h"
#include "train/trainer_run.h"

namespace apus::train {
namespace {

void add_to(std::vector<double>& sums, const std::vector<double>& values) {
  sums.resize(std::max(sums.size(), values.size()), 0.0);
  for (size_t index = 0; index < values.size(); ++index) sums[index] += values[index];
}

}  // namespace

void LogWindow::add(const StepReport& report) {
  ++steps;
  loss += report.loss;
  std::vector<double> values = report.metrics;
  metric_steps.resize(std::max(metric_steps.size(), values.size()), 0);
  for (size_t index = 0; index < values.size(); ++index) {
    const bool counts = report.metric_weights.at(index) > 0;
    if (!counts) values[index] = 0.0;
    metric_steps[index] += counts ? 1 : 0;
  }
  add_to(metrics, values);
}

/// Most memory that this process took: the card's, where the model is on one.
int64_t Trainer::memory_bytes() {
  const at::Device device = device_of(model_);
  return device.is_cuda() ? memory::device_memory(device).peak_reserved_bytes : memory_.peak_bytes();
}

void Trainer::log_step(Run& run, const StepReport& report) {
  LogWindow& window = run.state.window;
  const double steps = static_cast<double>(window.steps);
  LogLine line{.step = run.state.global_step,
               .max_steps = run.state.max_steps,
               .loss = window.loss / steps,
               .learning_rate = report.learning_rate,
               .epoch = run.epoch(),
               .grad_norm = report.grad_norm,
               .ranks = model_.dp().size(),
               .memory_bytes = memory_bytes(),
               .elapsed_seconds = run.state.elapsed_seconds};
  if (scaler_) line.loss_scale = report.loss_scale;
  const double seconds = std::max(run.state.elapsed_seconds - run.window_start, 1e-9);
  line.tokens_per_second = static_cast<double>(run.window_tokens) / seconds;
  const ModelFlops& flops = options_.flops;
  if (flops.per_token > 0 && flops.device_peak > 0)
    line.mfu = line.tokens_per_second / line.ranks * flops.per_token / flops.device_peak;
  const double attempt_seconds = run.state.elapsed_seconds - run.elapsed_before;
  line.seconds_per_step = attempt_seconds / static_cast<double>(run.state.global_step - run.first_step);
  line.data_wait_ms = run.loader->data_wait_ms() - run.window_data_wait;
  line.comm_wait_ms = model_.comm_wait_ms() - run.window_comm_wait;
  const std::vector<ObjectiveMetric>& metrics = objective_->metrics();
  for (size_t index = 0; index < metrics.size(); ++index) {
    const int64_t counted = window.metric_steps.at(index);
    if (counted > 0)
      line.metrics.emplace_back(metrics[index].name, window.metrics.at(index) / static_cast<double>(counted));
  }
  run.window_start = run.state.elapsed_seconds;
  run.window_tokens = 0;
  run.window_data_wait = run.loader->data_wait_ms();
  run.window_comm_wait = model_.comm_wait_ms();
  window = {};
  if (context_.callbacks.on_log) context_.callbacks.on_log(line.text(), line.json());
}

void Trainer::log_evaluation(Run& run, const EvaluationReport& report) {
  EvaluationLine line{.step = run.state.global_step,
                      .max_steps = run.state.max_steps,
                      .epoch = run.epoch(),
                      .loss = report.loss,
                      .rows = report.rows,
                      .seconds = report.seconds};
  const std::vector<ObjectiveMetric>& metrics = objective_->metrics();
  for (size_t index = 0; index < metrics.size(); ++index) {
    if (report.metric_weights.at(index) > 0)
      line.metrics.emplace_back(metrics[index].name, report.metrics.at(index));
  }
  if (context_.callbacks.on_log) context_.callbacks.on_log(line.text(), line.json());
}

}  // namespace apus::train
