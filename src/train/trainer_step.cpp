// One optimizer step: what the ranks tell each other, the micro-batches, and the check between backward and
// update.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "apus/base/error.h"
#include "apus/comm/agreed_phase.h"
#include "apus/comm/status_exchange.h"
#include "train/on_device.h"
#include "train/step_sums.h"
#include "train/trainer_run.h"

namespace apus::train {
namespace {

/// A figure in a message; the sign of what is no number means nothing.
std::string figure(double value) {
  return std::isnan(value) ? "nan" : detail::concat(value);
}

/// Rows that a message names.
constexpr size_t kMostRows = 8;

/// A loss scale in a message: whole numbers as such.
std::string scale_text(double scale) {
  const bool is_whole = scale == std::floor(scale) && scale < 1e15;
  return is_whole ? detail::concat(static_cast<int64_t>(scale)) : detail::concat(scale);
}

constexpr const char* kRemedy =
    "training has diverged. Lower --learning_rate, lengthen --warmup_ratio, or look for broken rows; the "
    "last "
    "checkpoint is unharmed";

constexpr const char* kFp16Remedy =
    "values of the model itself leave fp16's range (65504). Take --bf16 true, lower --learning_rate, or look "
    "for broken rows; the last checkpoint is unharmed";

int64_t tokens_of(const std::vector<data::Batch>& micro_batches) {
  int64_t tokens = 0;
  for (const data::Batch& batch : micro_batches) {
    if (batch.is_empty()) continue;
    tokens = std::accumulate(batch.layout->lengths.begin(), batch.layout->lengths.end(), tokens);
  }
  return tokens;
}

/// "train.jsonl:17", or "row 16" where rows come from no file.
std::string row_text(const data::Batch& batch, size_t index, const std::vector<std::string>& files) {
  const data::RowPlace at = index < batch.origins.size() ? batch.origins[index] : data::RowPlace{};
  if (at.line > 0 && static_cast<size_t>(at.file) < files.size())
    return detail::concat(files[static_cast<size_t>(at.file)], ":", at.line);
  return detail::concat("row ", batch.ordinals.at(index));
}

/// The rows of micro-batches, the first few by name.
std::string rows_text(const std::vector<const data::Batch*>& batches, const std::vector<std::string>& files) {
  std::string text;
  size_t count = 0;
  for (const data::Batch* batch : batches) {
    for (size_t index = 0; index < batch->ordinals.size(); ++index) {
      if (++count <= kMostRows) text += (text.empty() ? "" : ", ") + row_text(*batch, index, files);
    }
  }
  if (count > kMostRows) text += detail::concat(" and ", count - kMostRows, " more");
  return text.empty() ? "no row" : text;
}

}  // namespace

Trainer::Exchange Trainer::exchange_header(const std::vector<data::Batch>& micro_batches,
                                           const std::optional<std::string>& error) {
  const auto divisors = static_cast<int64_t>(objective_->weights({}).size());
  const at::Tensor header = at::zeros({divisors + 3}, at::kLong);
  int64_t* values = header.mutable_data_ptr<int64_t>();
  for (const data::Batch& batch : micro_batches) {
    const std::vector<int64_t> weights = objective_->weights(batch);
    for (int64_t divisor = 0; divisor < divisors; ++divisor)
      values[divisor] += weights.at(static_cast<size_t>(divisor));
  }
  int64_t* rest = values + divisors;
  rest[0] = tokens_of(micro_batches);
  rest[1] = error ? 1 : 0;
  rest[2] = stop_requested_.load() || (context_.stop && context_.stop->load()) ? 1 : 0;
  model_.dp().all_reduce(header)->wait();
  if (rest[1] > 0) {
    comm::agree(model_.dp(), error, {.what = "preparing a step"});
  }
  return {{values, values + divisors}, rest[0], rest[2] > 0};
}

StepReport Trainer::step(const std::vector<data::Batch>& micro_batches, double learning_rate) {
  settle();
  return run_step(micro_batches, learning_rate, exchange_header(micro_batches, std::nullopt));
}

StepReport Trainer::run_step(const std::vector<data::Batch>& micro_batches, double learning_rate,
                             const Exchange& header) {
  queue_step(micro_batches, learning_rate, header, [] {});
  return *settle();
}

std::optional<StepReport> Trainer::step_ahead(const std::vector<data::Batch>& micro_batches,
                                              double learning_rate) {
  std::optional<StepReport> before;
  if (objective_->memory() || scaler_) before = settle();
  const Exchange header = exchange_header(micro_batches, std::nullopt);
  queue_step(micro_batches, learning_rate, header, [&] {
    if (queued_) before = settle();
  });
  return before;
}

/// Forward and backward of a step's micro-batches, each sent to the device while the one before runs. What
/// multiplies the loss divides its divisors, as the objective may make gradients ahead by them.
StepSums Trainer::run_micro_batches(const std::vector<data::Batch>& micro_batches,
                                    const std::vector<double>& divisors) {
  StepSums sums(objective_->metrics().size());
  std::vector<double> scaled = divisors;
  for (double& divisor : scaled) divisor /= loss_scale();
  const at::Device device = device_of(model_);
  const auto sent = [&](size_t index) {
    return device.is_cuda() && index < micro_batches.size() ? micro_batches[index].to_device(device)
                                                            : data::Batch();
  };
  data::Batch next = sent(0);
  for (size_t index = 0; index < micro_batches.size(); ++index) {
    const bool last = index + 1 == micro_batches.size();
    const data::Batch placed = std::exchange(next, sent(index + 1));
    const ObjectiveResult result =
        objective_->run_in_step(model_, device.is_cuda() ? placed : micro_batches[index], scaled);
    const at::Tensor loss = divided(result.loss_sums, scaled);
    sums.add({scaler_ ? divided(result.loss_sums, divisors) : loss}, result.metric_sums);
    model_.backward(loss, last ? parallel::MicroBatchPlace::kLast : parallel::MicroBatchPlace::kNotLast);
  }
  return sums;
}

void Trainer::queue_step(const std::vector<data::Batch>& micro_batches, double learning_rate,
                         const Exchange& header, const std::function<void()>& before_update) {
  const StepSums sums = run_micro_batches(micro_batches, divisors_of(header.weights));
  before_update();
  Queued queued{.micro_batches = micro_batches,
                .header = header,
                .learning_rate = learning_rate,
                .step = model_.updates() + skipped_steps() + 1};
  parallel::UpdateOptions update = options_.update;
  update.lr = learning_rate;
  update.loss_scale = loss_scale();
  if (device_of(model_).is_cuda()) {
    update.found_inf = sums.found_inf();
    queued.values = sums.send(model_.update_async(update));
  } else {
    // Before the update, so that a loss that is no number harms nothing, and no gather stands in the way.
    queued.report = report_of(queued, sums.read());
    queued.report->grad_norm = model_.update(update);
  }
  queued_ = std::make_unique<Queued>(std::move(queued));
}

std::optional<StepReport> Trainer::settle() {
  if (!queued_) return std::nullopt;
  const std::unique_ptr<Queued> queued = std::move(queued_);
  if (queued->values) {
    const StepValues own = queued->values->read();
    queued->report = report_of(*queued, own);
    queued->report->grad_norm = own.extra;
  }
  StepReport& report = *queued->report;
  if (!std::isfinite(report.grad_norm) && queued->values) model_.settle_updates();
  judge_norm(report);
  if (ObjectiveMemory* memory = objective_->memory())
    memory->finish_step(queued->header.weights, report.metrics);
  return report;
}

/// The same on every rank, as the norm is.
void Trainer::judge_norm(StepReport& report) {
  if (scaler_) return count_in_scaler(report);
  if (std::isfinite(report.grad_norm)) return;
  throw Error(detail::concat("step ", report.step, ": the loss is ", figure(report.loss),
                             ", but the gradient norm ", figure(report.grad_norm), ": ", kRemedy));
}

void Trainer::count_in_scaler(StepReport& report) {
  report.loss_scale = scaler_->scale();
  report.skipped = !std::isfinite(report.grad_norm);
  using Gradients = LossScaler::Gradients;
  const LossScaler::Change change =
      scaler_->update(report.skipped ? Gradients::kOverflowed : Gradients::kFinite);
  const std::string before = scale_text(report.loss_scale);
  APUS_CHECK(change != LossScaler::Change::kAtMinimum, Error, "step ", report.step,
             ": gradients overflow though the loss scale is already at fp16.min_loss_scale, ", before, ": ",
             kFp16Remedy);
  if (!report.skipped || model_.dp().rank() != 0) return;
  std::string what = " -> " + scale_text(scaler_->scale());
  if (!scaler_->is_dynamic()) what = " is static";
  if (change == LossScaler::Change::kHysteresis)
    what = detail::concat(" stays (hysteresis ", scaler_->state().hysteresis + 1, " -> ",
                          scaler_->state().hysteresis, ")");
  context_.logger->warning(
      detail::concat("step ", report.step, ": overflow; loss scale ", before, what, ", step skipped"));
}

/// Of all ranks; the gradient norm is still to be told.
StepReport Trainer::report_of(const Queued& queued, const StepValues& own) {
  const std::vector<double> divisors = divisors_of(queued.header.weights);
  const std::vector<ObjectiveMetric>& metrics = objective_->metrics();
  std::vector<double> figures{std::accumulate(own.losses.begin(), own.losses.end(), 0.0)};
  figures.insert(figures.end(), own.metric_sums.begin(), own.metric_sums.end());
  sum_over_ranks(model_.dp(), figures);
  if (queued.values && !std::isfinite(figures[0])) model_.settle_updates();
  require_finite_loss(figures[0], queued, own.losses);
  return {.step = queued.step,
          .loss = figures[0],
          .learning_rate = queued.learning_rate,
          .tokens = queued.header.tokens,
          .metrics = means_of({figures.begin() + 1, figures.end()}, metrics, divisors),
          .metric_weights = metric_weights(metrics, queued.header.weights),
          .stop_requested = queued.header.stop};
}

void Trainer::require_finite_loss(double loss, const Queued& queued, const std::vector<double>& own_losses) {
  if (std::isfinite(loss)) return;
  std::vector<const data::Batch*> broken;
  for (size_t index = 0; index < own_losses.size(); ++index) {
    if (!std::isfinite(own_losses[index])) broken.push_back(&queued.micro_batches[index]);
  }
  comm::run_agreed(model_.dp(), "checking the loss", [&] {
    APUS_CHECK(broken.empty(), Error, "step ", queued.step, ": the loss is ", figure(loss), ", from ",
               rows_text(broken, files_), ": ", scaler_ ? kFp16Remedy : kRemedy);
  });
  throw Error(detail::concat("step ", queued.step, ": the loss is ", figure(loss),
                             ", though that of every micro-batch is finite: ", kRemedy));
}

}  // namespace apus::train
