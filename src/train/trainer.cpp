#include "apus/train/trainer.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apus/base/error.h"
#include "train/memory_sampler.h"
#include "train/on_device.h"
#include "train/trainer_run.h"

namespace apus::train {
namespace {

/// What a report about a hanging collective says of this rank: the step and its sample ids.
std::string step_note(int64_t step, const std::vector<data::Batch>& micro_batches) {
  std::string rows;
  for (const data::Batch& batch : micro_batches) {
    for (const int64_t ordinal : batch.ordinals) rows += detail::concat(rows.empty() ? "" : " ", ordinal);
  }
  return detail::concat("step ", step, ", rows ", rows.empty() ? "none" : rows);
}

}  // namespace

double seconds_since(const Clock& clock, Clock::Duration start) {
  return std::chrono::duration<double>(clock.steady_now() - start).count();
}

Trainer::Trainer(parallel::ShardedModel& model, std::shared_ptr<const Objective> objective,
                 TrainerOptions options, TrainerContext context)
    : model_(model),
      objective_(std::move(objective)),
      options_(std::move(options)),
      context_(std::move(context)) {
  APUS_CHECK(objective_ && context_.clock && context_.logger, ConfigError,
             "a Trainer needs an objective, a clock and a logger");
  APUS_CHECK(options_.logging_steps >= 1, ConfigError, "logging_steps must be at least 1, got ",
             options_.logging_steps);
  APUS_CHECK(options_.save_steps >= 0 && options_.eval_steps >= 0, ConfigError,
             "save_steps and eval_steps must not be negative, got ", options_.save_steps, " and ",
             options_.eval_steps);
  APUS_CHECK(options_.micro_batch_rows >= 1 && options_.eval_batch_rows >= 1 && options_.accumulation >= 1,
             ConfigError, "micro_batch_rows, eval_batch_rows and accumulation must be at least 1, got ",
             options_.micro_batch_rows, ", ", options_.eval_batch_rows, " and ", options_.accumulation);
  if (options_.fp16.enabled) scaler_.emplace(options_.fp16);
}

Trainer::~Trainer() = default;

void Trainer::set_objective(std::shared_ptr<const Objective> objective) {
  APUS_CHECK(objective, ConfigError, "a Trainer needs an objective");
  objective_ = std::move(objective);
}

void Trainer::stopping_peers(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    model_.dp().abort(error.what());
    throw;
  }
}

std::unique_ptr<Trainer::Run> Trainer::begin(std::shared_ptr<const data::Dataset> train,
                                             std::shared_ptr<const data::Dataset> held_out,
                                             TrainerState state) {
  const data::StepPlan plan({.rows = train->size(),
                             .micro_batch_rows = options_.micro_batch_rows,
                             .world = model_.dp().size(),
                             .accumulation = options_.accumulation,
                             .drop_last = options_.drop_last});
  APUS_CHECK(held_out || options_.early_stopping.patience == 0, ConfigError,
             "early stopping needs rows to evaluate; give --val_dataset or --split_dataset_ratio");
  if (ObjectiveMemory* memory = objective_->memory(); memory && !state.objective.empty())
    memory->load(state.objective);
  if (scaler_) scaler_.emplace(options_.fp16);
  if (scaler_ && state.loss_scaler) scaler_->set_state(*state.loss_scaler);
  state.max_steps = options_.max_steps > 0 ? options_.max_steps : plan.total_steps(options_.num_train_epochs);
  APUS_CHECK(state.global_step <= state.max_steps, ConfigError, "the checkpoint is at step ",
             state.global_step, ", beyond the ", state.max_steps,
             " steps of this run (--max_steps, else --num_train_epochs): raise them, "
             "or take its weights alone with --resume_only_model true");
  std::unique_ptr<Run> whole(new Run{.held_out = std::move(held_out),
                                     .state = std::move(state),
                                     .plan = plan,
                                     .judge = EvaluationJudge(options_, objective_->metrics())});
  Run& run = *whole;
  run.first_step = run.saved_step = run.state.global_step;
  run.gave_up = run.judge.gives_up(run.state.best);
  run.elapsed_before = run.window_start = run.state.elapsed_seconds;
  run.window_comm_wait = model_.comm_wait_ms();
  files_ = train->origin().files;
  run.cursor = run.state.cursor;
  queued_.reset();  // of a run that ended by an exception
  stop_requested_.store(false);
  const data::Sampler sampler(
      {.rows = train->size(), .seed = options_.data_seed, .shuffle = options_.shuffle});
  const int64_t left = run.state.max_steps - run.state.global_step;
  run.loader.emplace(std::move(train), sampler, plan,
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
  return whole;
}

RunSummary Trainer::summary_of(const Run& run) const {
  const bool at_the_end = run.state.global_step >= run.state.max_steps;
  return {.steps = run.state.global_step,
          .last_loss = run.last_loss,
          .finished = at_the_end || run.gave_up,
          .stopped_early = run.gave_up && !at_the_end,
          .seconds = seconds_since(*context_.clock, run.start),
          .best = run.state.best};
}

RunSummary Trainer::run(std::shared_ptr<const data::Dataset> train,
                        std::shared_ptr<const data::Dataset> held_out, TrainerState state) {
  // What is wrong with options or data is wrong on all ranks alike: no peer needs to be stopped.
  const std::unique_ptr<Run> whole = begin(std::move(train), std::move(held_out), std::move(state));
  Run& run = *whole;
  RunSummary summary;
  const MemorySampler sampler_thread(memory_);
  stopping_peers([&] {
    if (context_.callbacks.on_begin) context_.callbacks.on_begin(run.state);
    if (options_.eval_on_start && run.held_out && run.state.global_step == 0) evaluate_held_out(run);
    while (!run.is_over()) run_one(run);
    summary = summary_of(run);
    if (context_.callbacks.on_end) context_.callbacks.on_end(summary);
  });
  return summary;
}

void Trainer::run_one(Run& run) {
  std::optional<double> began;  // where a step is queued that this one follows on
  if (queued_) began = seconds_since(*context_.clock, run.start);
  data::StepBatches batches;
  std::optional<std::string> error;
  std::exception_ptr failure;
  try {
    batches = run.loader->next();
  } catch (const std::exception& caught) {
    error = caught.what();
    failure = std::current_exception();
  }
  const int64_t step = run.state.global_step + (queued_ ? 1 : 0) + 1;
  Exchange header;
  model_.dp().set_note(step_note(step, batches.micro_batches));
  try {
    header = exchange_header(batches.micro_batches, error);
  } catch (const CommError&) {
    if (failure) std::rethrow_exception(failure);
    throw;
  }
  // A run that is stopped before its first step makes one, so that there is something to go on from.
  if (header.stop && step - 1 > run.first_step) {
    settle_in(run);
    run.stopped = true;
    if (run.saved_step != run.state.global_step) save(run);
    return;
  }
  const double rate = run.schedule->lr(step - 1 - skipped_steps());
  queue_step(batches.micro_batches, rate, header, [&] { settle_in(run, began); });
  queued_->cursor = run.loader->cursor();
  if (must_settle(run, step, header)) settle_in(run);
}

/// Whether something follows on this step that needs its figures, or the weights that it leaves. Under a
/// scaled loss the next forward does: it needs the scale.
bool Trainer::must_settle(const Run& run, int64_t step, const Exchange& header) const {
  const auto due = [step](int64_t steps) { return steps > 0 && step % steps == 0; };
  if (!device_of(model_).is_cuda() || scaler_ || header.stop || step == run.state.max_steps) return true;
  return objective_->memory() || due(options_.save_steps) || (run.held_out && due(options_.eval_steps));
}

/// Counts the step that is queued, if there is one, with all that is due then. `behind_since`: when the work
/// on the step behind it began, if it has; figures that nobody had to wait for may have been there since
/// then.
void Trainer::settle_in(Run& run, std::optional<double> behind_since) {
  if (!queued_) return;
  run.cursor = queued_->cursor;
  const bool were_here = queued_->values && queued_->values->are_here();
  const StepReport report = *settle();
  run.step_end = were_here && behind_since ? *behind_since : seconds_since(*context_.clock, run.start);
  finish_step(run, report);
}

void Trainer::finish_step(Run& run, const StepReport& report) {
  const bool is_best = count_step(run, report);
  const bool last = run.state.global_step == run.state.max_steps;
  run.stopped = report.stop_requested;
  const bool due = options_.save_steps > 0 && run.state.global_step % options_.save_steps == 0;
  if (due || last || run.stopped || run.gave_up || (options_.save_best && is_best)) save(run);
}

bool Trainer::count_step(Run& run, const StepReport& report) {
  TrainerState& state = run.state;
  ++state.global_step;
  state.cursor = run.cursor;
  state.tokens += report.tokens;
  if (const ObjectiveMemory* memory = objective_->memory()) state.objective = memory->save();
  if (scaler_) state.loss_scaler = scaler_->state();
  state.window.add(report);
  run.window_tokens += report.tokens;
  run.last_loss = report.loss;
  state.elapsed_seconds = run.elapsed_before + run.step_end;
  if (context_.callbacks.on_step) context_.callbacks.on_step(report);

  const bool last = state.global_step == state.max_steps;
  const auto due = [&](int64_t steps) { return steps > 0 && state.global_step % steps == 0; };
  if (due(options_.logging_steps) || last) log_step(run, report);
  if (!run.held_out || !(due(options_.eval_steps) || last)) return false;
  evaluate_held_out(run);
  return state.best && state.best->step == state.global_step;
}

void Trainer::save(Run& run) {
  run.saved_step = run.state.global_step;
  if (context_.callbacks.on_save) context_.callbacks.on_save(run.state);
}

}  // namespace apus::train
