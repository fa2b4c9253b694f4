#include "apus/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "apus/base/error.h"
#include "apus/comm/status_exchange.h"
#include "apus/train/log_line.h"
#include "train/memory_sampler.h"

namespace apus::train {
namespace {

double seconds_since(const Clock& clock, Clock::Duration start) {
  return std::chrono::duration<double>(clock.steady_now() - start).count();
}

int64_t tokens_of(const std::vector<data::Batch>& micro_batches) {
  int64_t tokens = 0;
  for (const data::Batch& batch : micro_batches) {
    if (batch.is_empty()) continue;
    tokens = std::accumulate(batch.layout->lengths.begin(), batch.layout->lengths.end(), tokens);
  }
  return tokens;
}

/// What a report about a hanging collective says of this rank: the step and its sample ids.
std::string step_note(int64_t step, const std::vector<data::Batch>& micro_batches) {
  std::string rows;
  for (const data::Batch& batch : micro_batches) {
    for (const int64_t ordinal : batch.ordinals) rows += detail::concat(rows.empty() ? "" : " ", ordinal);
  }
  return detail::concat("step ", step, ", rows ", rows.empty() ? "none" : rows);
}

/// Adds an fp64 vector over the ranks.
void sum_over_ranks(comm::Communicator& group, std::vector<double>& values) {
  const at::Tensor sums = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), sums.mutable_data_ptr<double>());
  group.all_reduce(sums)->wait();
  std::copy_n(sums.const_data_ptr<double>(), values.size(), values.begin());
}

void add_to(std::vector<double>& sums, const std::vector<double>& values) {
  sums.resize(std::max(sums.size(), values.size()), 0.0);
  for (size_t index = 0; index < values.size(); ++index) sums[index] += values[index];
}

/// What sums are divided by; a divisor that nothing of the step counts in divides zeros.
std::vector<double> divisors_of(const std::vector<int64_t>& weights) {
  std::vector<double> divisors;
  for (const int64_t weight : weights) divisors.push_back(static_cast<double>(std::max<int64_t>(weight, 1)));
  return divisors;
}

/// A micro-batch's part of the step's loss.
at::Tensor divided(const std::vector<at::Tensor>& loss_sums, const std::vector<double>& divisors) {
  at::Tensor loss;
  for (size_t index = 0; index < loss_sums.size(); ++index) {
    if (!loss_sums[index].defined()) continue;
    const at::Tensor part = loss_sums[index].div(divisors.at(index));
    loss = loss.defined() ? loss.add(part) : part;
  }
  APUS_ASSERT(loss.defined(), "an objective gave no loss");
  return loss;
}

}  // namespace

/// What the ranks know of a step before its first forward.
struct Trainer::Exchange {
  std::vector<int64_t> weights;
  int64_t tokens = 0;
  bool stop = false;
};

/// Everything that lives as long as one call of run().
struct Trainer::Run {
  std::shared_ptr<const data::Dataset> held_out;
  TrainerState state;
  data::StepPlan plan;
  std::optional<data::Loader> loader;
  std::optional<optim::LrSchedule> schedule;
  Clock::Duration start{};
  double elapsed_before = 0.0;
  int64_t first_step = 0;       // of this attempt
  double window_start = 0.0;    // elapsed seconds at the last log line
  int64_t window_tokens = 0;
  double window_data_wait = 0.0;
  double window_comm_wait = 0.0;
  double last_loss = 0.0;
  bool stopped = false;
};

Trainer::Trainer(parallel::ShardedModel& model, std::shared_ptr<const Objective> objective, TrainerOptions options,
                 TrainerContext context)
    : model_(model), objective_(std::move(objective)), options_(std::move(options)), context_(std::move(context)) {
  APUS_CHECK(objective_ && context_.clock && context_.logger, ConfigError,
             "a Trainer needs an objective, a clock and a logger");
  APUS_CHECK(options_.logging_steps >= 1, ConfigError, "logging_steps must be at least 1, got ",
             options_.logging_steps);
  APUS_CHECK(options_.save_steps >= 0 && options_.eval_steps >= 0, ConfigError,
             "save_steps and eval_steps must not be negative, got ", options_.save_steps, " and ", options_.eval_steps);
  APUS_CHECK(options_.micro_batch_rows >= 1 && options_.eval_batch_rows >= 1 && options_.accumulation >= 1, ConfigError,
             "micro_batch_rows, eval_batch_rows and accumulation must be at least 1, got ", options_.micro_batch_rows,
             ", ", options_.eval_batch_rows, " and ", options_.accumulation);
}

Trainer::Exchange Trainer::exchange_header(const std::vector<data::Batch>& micro_batches,
                                           const std::optional<std::string>& error) {
  const std::vector<int64_t> none = objective_->weights({});
  const auto divisors = static_cast<int64_t>(none.size());
  const at::Tensor header = at::zeros({divisors + 3}, at::kLong);
  int64_t* values = header.mutable_data_ptr<int64_t>();
  for (const data::Batch& batch : micro_batches) {
    const std::vector<int64_t> weights = objective_->weights(batch);
    for (size_t divisor = 0; divisor < none.size(); ++divisor) values[divisor] += weights.at(divisor);
  }
  int64_t* rest = values + divisors;
  rest[0] = tokens_of(micro_batches);
  rest[1] = error ? 1 : 0;
  rest[2] = context_.stop && context_.stop->load() ? 1 : 0;
  model_.dp().all_reduce(header)->wait();
  if (rest[1] > 0) {
    comm::agree(model_.dp(), error, {.what = "preparing a step"});
  }
  return {{values, values + divisors}, rest[0], rest[2] > 0};
}

StepReport Trainer::step(const std::vector<data::Batch>& micro_batches, double learning_rate) {
  return run_step(micro_batches, learning_rate, std::nullopt);
}

StepReport Trainer::run_step(const std::vector<data::Batch>& micro_batches, double learning_rate,
                             const std::optional<std::string>& error) {
  const Exchange header = exchange_header(micro_batches, error);
  const std::vector<double> divisors = divisors_of(header.weights);
  const std::vector<ObjectiveMetric>& metrics = objective_->metrics();
  std::vector<double> sums(1 + metrics.size(), 0.0);
  for (size_t index = 0; index < micro_batches.size(); ++index) {
    const bool last = index + 1 == micro_batches.size();
    const ObjectiveResult result = objective_->run(model_, micro_batches[index]);
    const at::Tensor loss = divided(result.loss_sums, divisors);
    sums[0] += loss.item<double>();
    for (size_t metric = 0; result.metric_sums.defined() && metric < metrics.size(); ++metric) {
      sums[1 + metric] += result.metric_sums[static_cast<int64_t>(metric)].item<double>() /
                          divisors.at(metrics[metric].divisor);
    }
    model_.backward(loss, last ? parallel::MicroBatchPlace::kLast : parallel::MicroBatchPlace::kNotLast);
  }
  parallel::UpdateOptions update = options_.update;
  update.lr = learning_rate;
  StepReport report{.learning_rate = learning_rate, .tokens = header.tokens, .stop_requested = header.stop};
  report.grad_norm = model_.update(update);
  sum_over_ranks(model_.dp(), sums);
  report.step = model_.updates();
  report.loss = sums[0];
  report.metrics.assign(sums.begin() + 1, sums.end());
  check_finite(report);
  if (ObjectiveMemory* memory = objective_->memory()) memory->finish_step(header.weights, report.metrics);
  return report;
}

void Trainer::check_finite(const StepReport& report) const {
  APUS_CHECK(std::isfinite(report.loss) && std::isfinite(report.grad_norm), Error, "after ", report.step,
             " steps the loss is ", report.loss, " and the gradient norm ", report.grad_norm,
             ": training has diverged. Lower --learning_rate, lengthen --warmup_ratio, or look for broken rows; "
             "the last checkpoint is unharmed");
}

EvaluationReport Trainer::evaluate(const data::Dataset& dataset) {
  EvaluationReport report;
  stopping_peers([&] { report = evaluate_rows(dataset); });
  return report;
}

void Trainer::stopping_peers(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    model_.dp().abort(error.what());
    throw;
  }
}

EvaluationReport Trainer::evaluate_rows(const data::Dataset& dataset) {
  at::NoGradGuard no_grad;
  const Clock::Duration start = context_.clock->steady_now();
  const int64_t world = model_.dp().size();
  const int64_t rows = options_.eval_batch_rows;
  const int64_t rounds = (dataset.size() + rows * world - 1) / (rows * world);
  const std::vector<ObjectiveMetric>& metrics = objective_->metrics();
  const size_t divisors = objective_->weights({}).size();
  // Weights and loss sums of each divisor, then the metrics' sums.
  std::vector<double> sums(2 * divisors + metrics.size(), 0.0);
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t first = std::min(dataset.size(), (round * world + model_.dp().rank()) * rows);
    std::vector<int64_t> ordinals(static_cast<size_t>(std::min(rows, dataset.size() - first)));
    std::iota(ordinals.begin(), ordinals.end(), first);
    const data::Batch batch = dataset.collate(ordinals, options_.collate);
    const ObjectiveResult result = objective_->run(model_, batch);
    const std::vector<int64_t> weights = objective_->weights(batch);
    for (size_t index = 0; index < divisors; ++index) {
      sums[index] += static_cast<double>(weights.at(index));
      if (index < result.loss_sums.size() && result.loss_sums[index].defined())
        sums[divisors + index] += result.loss_sums[index].item<double>();
    }
    for (size_t metric = 0; result.metric_sums.defined() && metric < metrics.size(); ++metric)
      sums[2 * divisors + metric] += result.metric_sums[static_cast<int64_t>(metric)].item<double>();
  }
  sum_over_ranks(model_.dp(), sums);
  EvaluationReport report;
  for (size_t index = 0; index < divisors; ++index)
    report.loss += sums[divisors + index] / std::max(sums[index], 1.0);
  for (int64_t ordinal = 0; ordinal < dataset.size(); ++ordinal) report.rows += dataset.rows_in(ordinal);
  for (size_t metric = 0; metric < metrics.size(); ++metric)
    report.metrics.push_back(sums[2 * divisors + metric] / std::max(sums[metrics[metric].divisor], 1.0));
  report.seconds = seconds_since(*context_.clock, start);
  return report;
}

void LogWindow::add(const StepReport& report) {
  ++steps;
  loss += report.loss;
  add_to(metrics, report.metrics);
}

RunSummary Trainer::run(std::shared_ptr<const data::Dataset> train, std::shared_ptr<const data::Dataset> held_out,
                        TrainerState state) {
  const data::StepPlan plan({.rows = train->size(),
                             .micro_batch_rows = options_.micro_batch_rows,
                             .world = model_.dp().size(),
                             .accumulation = options_.accumulation,
                             .drop_last = options_.drop_last});
  if (ObjectiveMemory* memory = objective_->memory(); memory && !state.objective.empty())
    memory->load(state.objective);
  state.max_steps = options_.max_steps > 0 ? options_.max_steps : plan.total_steps(options_.num_train_epochs);
  Run run{.held_out = std::move(held_out), .state = std::move(state), .plan = plan};
  run.first_step = run.state.global_step;
  run.elapsed_before = run.state.elapsed_seconds;
  run.window_start = run.elapsed_before;
  run.window_comm_wait = model_.comm_wait_ms();
  const data::Sampler sampler({.rows = train->size(), .seed = options_.data_seed, .shuffle = options_.shuffle});
  const int64_t left = run.state.max_steps - run.state.global_step;
  run.loader.emplace(train, sampler, plan,
                     data::LoaderOptions{.rank = model_.dp().rank(),
                                         .workers = options_.loader_workers,
                                         .prefetch_factor = options_.prefetch_factor,
                                         .collate = options_.collate,
                                         .balance = options_.balance,
                                         .start = run.state.cursor,
                                         .steps = std::max<int64_t>(left, 0),
                                         .clock = context_.clock});
  run.schedule.emplace(optim::ScheduleOptions{
      .type = options_.lr_scheduler_type,
      .learning_rate = options_.update.lr,
      .total_steps = run.state.max_steps,
      .warmup_steps = optim::resolve_warmup_steps(run.state.max_steps, options_.warmup),
      .kwargs = options_.lr_scheduler_kwargs});
  run.start = context_.clock->steady_now();
  const MemorySampler sampler_thread(memory_);
  stopping_peers([&] {
    while (run.state.global_step < run.state.max_steps && !run.stopped) run_one(run);
  });
  return {.steps = run.state.global_step,
          .last_loss = run.last_loss,
          .finished = run.state.global_step >= run.state.max_steps,
          .seconds = seconds_since(*context_.clock, run.start)};
}

void Trainer::run_one(Run& run) {
  data::StepBatches batches;
  std::optional<std::string> error;
  std::exception_ptr failure;
  try {
    batches = run.loader->next();
  } catch (const std::exception& caught) {
    error = caught.what();
    failure = std::current_exception();
  }
  StepReport report;
  model_.dp().set_note(step_note(run.state.global_step + 1, batches.micro_batches));
  try {
    report = run_step(batches.micro_batches, run.schedule->lr(run.state.global_step), error);
  } catch (const CommError&) {
    if (failure) std::rethrow_exception(failure);
    throw;
  }
  TrainerState& state = run.state;
  ++state.global_step;
  state.cursor = run.loader->cursor();
  state.tokens += report.tokens;
  if (const ObjectiveMemory* memory = objective_->memory()) state.objective = memory->save();
  state.window.add(report);
  run.window_tokens += report.tokens;
  run.last_loss = report.loss;
  state.elapsed_seconds = run.elapsed_before + seconds_since(*context_.clock, run.start);
  if (context_.callbacks.on_step) context_.callbacks.on_step(report);

  const bool last = state.global_step == state.max_steps;
  run.stopped = report.stop_requested;
  const auto due = [&](int64_t steps) { return steps > 0 && state.global_step % steps == 0; };
  if (due(options_.logging_steps) || last) log_step(run, report);
  if (run.held_out && (due(options_.eval_steps) || last)) log_evaluation(run, evaluate_rows(*run.held_out));
  if (due(options_.save_steps) || last || run.stopped) save(run);
}

void Trainer::save(Run& run) {
  if (context_.callbacks.on_save) context_.callbacks.on_save(run.state);
}

void Trainer::log_step(Run& run, const StepReport& report) {
  LogWindow& window = run.state.window;
  const double steps = static_cast<double>(window.steps);
  LogLine line{.step = run.state.global_step,
               .max_steps = run.state.max_steps,
               .loss = window.loss / steps,
               .learning_rate = report.learning_rate,
               .epoch = static_cast<double>(run.state.global_step) / static_cast<double>(run.plan.steps_per_epoch()),
               .grad_norm = report.grad_norm,
               .ranks = model_.dp().size(),
               .memory_bytes = memory_.peak_bytes(),
               .elapsed_seconds = run.state.elapsed_seconds};
  const double seconds = std::max(run.state.elapsed_seconds - run.window_start, 1e-9);
  line.tokens_per_second = static_cast<double>(run.window_tokens) / seconds;
  const double attempt_seconds = run.state.elapsed_seconds - run.elapsed_before;
  line.seconds_per_step = attempt_seconds / static_cast<double>(run.state.global_step - run.first_step);
  line.data_wait_ms = run.loader->data_wait_ms() - run.window_data_wait;
  line.comm_wait_ms = model_.comm_wait_ms() - run.window_comm_wait;
  for (size_t index = 0; index < objective_->metrics().size(); ++index) {
    line.metrics.emplace_back(objective_->metrics()[index].name, window.metrics.at(index) / steps);
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
                      .epoch = static_cast<double>(run.state.global_step) /
                               static_cast<double>(run.plan.steps_per_epoch()),
                      .loss = report.loss,
                      .rows = report.rows,
                      .seconds = report.seconds};
  for (size_t index = 0; index < objective_->metrics().size(); ++index) {
    line.metrics.emplace_back(objective_->metrics()[index].name, report.metrics.at(index));
  }
  if (context_.callbacks.on_log) context_.callbacks.on_log(line.text(), line.json());
}

}  // namespace apus::train
