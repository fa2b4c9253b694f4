#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/clock.h"
#include "apus/base/log.h"
#include "apus/base/memory_usage.h"
#include "apus/data/dataset.h"
#include "apus/data/loader.h"
#include "apus/optim/schedule.h"
#include "apus/parallel/sharded_model.h"
#include "apus/train/loss_scaler.h"
#include "apus/train/objective.h"

namespace apus::train {

class StepSums;
struct StepValues;

/// One optimizer step, the same on every rank.
struct APUS_API StepReport {
  /// Steps made, this one included; with a scaled loss some may have been skipped.
  int64_t step = 0;
  double loss = 0.0;
  /// Before clipping, without the loss's scale. Not finite if the step was skipped.
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  /// Token rows without padding, over all ranks.
  int64_t tokens = 0;
  /// In the order of Objective::metrics().
  std::vector<double> metrics;
  /// What each metric was divided by: where it is 0 nothing of the step counts in it, and its value says
  /// nothing.
  std::vector<int64_t> metric_weights;
  /// Some rank was asked to stop before this step.
  bool stop_requested = false;
  /// What the loss was multiplied by before backward; 1 where it is not scaled.
  double loss_scale = 1.0;
  /// Gradients overflowed under the scaled loss: weights, moments and the bias correction's count are as they
  /// were.
  bool skipped = false;
};

/// Mean of an evaluation over all rows.
struct APUS_API EvaluationReport {
  double loss = 0.0;
  std::vector<double> metrics;
  /// As StepReport::metric_weights.
  std::vector<int64_t> metric_weights;
  int64_t rows = 0;
  double seconds = 0.0;
};

/// What runs between log lines: sums over the steps since the last one. Part of a checkpoint, so that a
/// resumed run prints the lines that an uninterrupted one prints.
struct APUS_API LogWindow {
  int64_t steps = 0;
  double loss = 0.0;
  std::vector<double> metrics;
  /// Steps that count in each metric: those in which it has a weight.
  std::vector<int64_t> metric_steps;

  /// Counts a step.
  void add(const StepReport& report);
};

/// The best evaluation of a run so far.
struct APUS_API BestEvaluation {
  /// The figure it is judged by, e.g. "eval_loss".
  std::string metric;
  double value = 0.0;
  /// After which it was made.
  int64_t step = 0;
  /// Evaluations since the last one that was better by more than EarlyStopping::threshold.
  int64_t without_progress = 0;
};

/// Where a run stands; with weights and optimizer states all that a checkpoint needs.
struct APUS_API TrainerState {
  int64_t global_step = 0;
  int64_t max_steps = 0;
  data::LoaderCursor cursor;
  LogWindow window;
  /// None: no evaluation yet.
  std::optional<BestEvaluation> best = {};
  /// Of training, over all attempts.
  double elapsed_seconds = 0.0;
  /// Trained so far.
  int64_t tokens = 0;
  /// ObjectiveMemory::save; empty for objectives without one.
  std::vector<double> objective;
  /// None: the loss is not scaled.
  std::optional<LossScalerState> loss_scaler = {};
};

/// A checkpoint's trainer_state.json.
APUS_API nlohmann::ordered_json to_json(const TrainerState& state);
/// Reads it back. Throws DataError naming `source` and the key.
APUS_API TrainerState trainer_state_from_json(const nlohmann::json& json, const std::string& source);

/// When a run ends before its last step, because evaluations no longer get better.
struct EarlyStopping {
  /// End after so many evaluations in a row without progress; 0 = never.
  int64_t patience = 0;
  /// A better figure is progress if it is better by more than this.
  double threshold = 0.0;
};

/// What mfu is worked out from; where one is 0 no line shows it.
struct ModelFlops {
  /// Of training one token: forward and backward, not what recompute repeats.
  double per_token = 0.0;
  /// Most that one device does in a second.
  double device_peak = 0.0;
};

/// Length, cadence and numbers of a run.
struct APUS_API TrainerOptions {
  double num_train_epochs = 3;
  /// Positive: overrides the epochs.
  int64_t max_steps = -1;
  /// Rows of a rank's micro-batch in training, and in evaluation.
  int64_t micro_batch_rows = 1;
  int64_t eval_batch_rows = 1;
  /// Micro-batches a rank runs in a step.
  int64_t accumulation = 1;
  bool drop_last = false;
  /// A new order of rows each epoch, decided by data_seed alone.
  bool shuffle = true;
  uint64_t data_seed = 42;
  data::CollateOptions collate;
  /// Deal each step's rows by cost (see data::LoaderOptions::balance, and when to leave it out).
  std::optional<data::CostModel> balance;
  int64_t loader_workers = 1;
  int64_t prefetch_factor = 2;
  std::string lr_scheduler_type = "cosine";
  std::string lr_scheduler_kwargs;
  optim::WarmupOptions warmup;
  /// Its lr is the peak.
  parallel::UpdateOptions update;
  /// Steps between log lines.
  int64_t logging_steps = 5;
  /// 0: only at the end.
  int64_t save_steps = 500;
  /// 0: only at the end.
  int64_t eval_steps = 500;
  /// Evaluate before the first step of a new run, too.
  bool eval_on_start = false;
  /// The figure of an evaluation that says which is the best: eval_loss, or eval_ and the name of one of the
  /// objective's metrics; the prefix may be left out.
  std::string metric_for_best_model = "eval_loss";
  /// None: losses (names that end in "loss" or begin with "eval_loss") are better when smaller, others when
  /// larger.
  std::optional<bool> greater_is_better = {};
  EarlyStopping early_stopping = {};
  /// Save after each evaluation that is the best so far, too: so that the best has a checkpoint, whatever
  /// save_steps.
  bool save_best = false;
  ModelFlops flops = {};
  /// Enabled: the loss is scaled, and a step whose gradients overflow is skipped.
  Fp16Options fp16 = {};
};

/// How a run ended.
struct APUS_API RunSummary {
  int64_t steps = 0;
  double last_loss = 0.0;
  /// False: stopped by the stop token or request_stop.
  bool finished = false;
  /// Finished before the last step, as evaluations no longer got better.
  bool stopped_early = false;
  double seconds = 0.0;
  /// None: nothing was evaluated.
  std::optional<BestEvaluation> best = {};
};

/// What a run reports to its host; every function may be empty. Called on all ranks at the same steps, in
/// this order: on_begin; after each step on_step, on_log, on_evaluate, on_save, those that are due; on_end.
/// What one throws ends the run on all ranks (Trainer aborts the communicator). To end a run early call
/// Trainer::request_stop from any of them, on any rank.
struct APUS_API TrainerCallbacks {
  /// Before the first step; the state says where the run stands and how long it is.
  std::function<void(const TrainerState&)> on_begin;
  std::function<void(const StepReport&)> on_step;
  /// A log line is due, or that of an evaluation: on rank 0 the line and its JSON record, elsewhere called
  /// alike.
  std::function<void(const std::string& line, const nlohmann::ordered_json& record)> on_log;
  /// An evaluation was made; it is the best so far if state.best->step is state.global_step.
  std::function<void(const EvaluationReport&, const TrainerState& state)> on_evaluate;
  /// A checkpoint is due.
  std::function<void(const TrainerState&)> on_save;
  /// After the last step, also of a run that was stopped; not after an exception.
  std::function<void(const RunSummary&)> on_end;
};

/// Surroundings of a trainer; the pointers outlive it.
struct APUS_API TrainerContext {
  Clock* clock = nullptr;
  Logger* logger = nullptr;
  /// Set on any rank: finish the running step, save, return. A run that has not made a step yet makes one.
  const std::atomic<bool>* stop = nullptr;
  TrainerCallbacks callbacks;
};

/// The training loop: accumulation, one division a step, schedule, log lines, evaluation, checkpoint cadence.
///
/// step() runs one optimizer step over this rank's micro-batches; run() does the whole job over a dataset.
/// On the CPU a step's losses and metrics are read once, after its last backward and before its update. On a
/// GPU nothing of a step waits for the device: figures go to the host by themselves and are read one step
/// late, when the next step's backward is queued and its update is not; so reports, log lines and the finite
/// check come then, but at once where the run evaluates, saves, stops or ends, and where the objective
/// remembers (memory()). Either way a loss or norm that is not finite changes nothing: on a GPU the update
/// looks at them on the device. Micro-batches are sent to the device one ahead. A loss that is not finite
/// ends the run: weights, moments and checkpoints keep what they were.
/// With fp16.enabled losses are multiplied by LossScaler::scale() before backward, and a gradient norm that is
/// not finite skips the step: its rows are used up and it counts in global_step, max_steps and cadences, but
/// neither in the learning rate's schedule nor in AdamW's bias correction, as under transformers with
/// DeepSpeed. The ranks agree about it by the norm. The next step's scale depends on it, so there a GPU's
/// figures are read behind each step.
/// Collectives: a step: one all_reduce of
/// 8 * (3 + divisors) bytes (divisors, tokens, status, stop), the engine's
///              own, and between backward and update one all_reduce of 8 * (1 + metrics) bytes (the report).
///              An evaluation: one all_reduce of 8 * (2 * divisors + metrics) bytes.
/// Failure:     whatever one rank throws inside run() or evaluate() aborts the communicator, so that the
/// others stop. Throws: DataError and the like from making batches, on the rank that failed; CommError with
/// its message on
///         the others; Error on the ranks whose loss is not finite, naming step, rows and flags, CommError
///         with that message on the others; Error on all if the gradient norm is not finite, with a scaled
///         loss only if its scale is at the minimum. ConfigError from run() if metric_for_best_model is no
///         figure of the evaluation, or early stopping has nothing to evaluate, and from construction
///         (Fp16Options::check).
class APUS_API Trainer final {
 public:
  Trainer(parallel::ShardedModel& model, std::shared_ptr<const Objective> objective, TrainerOptions options,
          TrainerContext context);
  ~Trainer();

  /// Trains towards another goal from the next step or run on.
  void set_objective(std::shared_ptr<const Objective> objective);
  const Objective& objective() const { return *objective_; }
  /// Null: the loss is not scaled.
  const LossScaler* loss_scaler() const { return scaler_ ? &*scaler_ : nullptr; }

  /// Asks the run to end as the stop token does. Any thread, any rank; the ranks agree before the next step.
  void request_stop() { stop_requested_.store(true); }

  /// One step at this rate. Every rank passes equally many micro-batches; empty ones are allowed.
  StepReport step(const std::vector<data::Batch>& micro_batches, double learning_rate);

  /// The same without waiting for the step's figures: what comes back is the report of the step that was
  /// queued before, if its report was not taken yet. What is wrong with a step is thrown by the call that
  /// would report it.
  std::optional<StepReport> step_ahead(const std::vector<data::Batch>& micro_batches, double learning_rate);
  /// Waits for the report of the step that step_ahead queued last; none if it was taken.
  std::optional<StepReport> settle();

  /// Trains over the dataset from `state` on; evaluates on `held_out` (may be null) at eval_steps and at the
  /// end.
  RunSummary run(std::shared_ptr<const data::Dataset> train, std::shared_ptr<const data::Dataset> held_out,
                 TrainerState state = {});

  /// Loss and metrics over all rows of a dataset, without tape.
  EvaluationReport evaluate(const data::Dataset& dataset);

 private:
  struct Run;
  struct Exchange;
  struct Queued;

  Exchange exchange_header(const std::vector<data::Batch>& micro_batches,
                           const std::optional<std::string>& error);
  StepReport run_step(const std::vector<data::Batch>& micro_batches, double learning_rate,
                      const Exchange& header);
  void queue_step(const std::vector<data::Batch>& micro_batches, double learning_rate, const Exchange& header,
                  const std::function<void()>& before_update);
  StepSums run_micro_batches(const std::vector<data::Batch>& micro_batches,
                             const std::vector<double>& divisors);
  StepReport report_of(const Queued& queued, const StepValues& own);
  void judge_norm(StepReport& report);
  void count_in_scaler(StepReport& report);
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1.0; }
  int64_t skipped_steps() const { return scaler_ ? scaler_->state().skipped : 0; }
  EvaluationReport evaluate_rows(const data::Dataset& dataset);
  void stopping_peers(const std::function<void()>& work);
  void require_finite_loss(double loss, const Queued& queued, const std::vector<double>& own_losses);
  std::unique_ptr<Run> begin(std::shared_ptr<const data::Dataset> train,
                             std::shared_ptr<const data::Dataset> held_out, TrainerState state);
  RunSummary summary_of(const Run& run) const;
  void run_one(Run& run);
  bool must_settle(const Run& run, int64_t step, const Exchange& header) const;
  void settle_in(Run& run, std::optional<double> behind_since = {});
  void finish_step(Run& run, const StepReport& report);
  bool count_step(Run& run, const StepReport& report);
  int64_t memory_bytes();
  void log_step(Run& run, const StepReport& report);
  void evaluate_held_out(Run& run);
  void log_evaluation(Run& run, const EvaluationReport& report);
  void save(Run& run);

  parallel::ShardedModel& model_;
  std::shared_ptr<const Objective> objective_;
  TrainerOptions options_;
  TrainerContext context_;
  std::vector<std::string> files_;  // of the dataset that is trained, for messages
  std::atomic<bool> stop_requested_ = false;
  std::unique_ptr<Queued> queued_;
  std::optional<LossScaler> scaler_;
  ResidentPeak memory_;
};

}  // namespace apus::train
