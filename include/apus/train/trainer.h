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
#include "apus/train/objective.h"

namespace apus::train {

/// One optimizer step, the same on every rank.
struct APUS_API StepReport {
  /// Updates made, this one included.
  int64_t step = 0;
  double loss = 0.0;
  /// Before clipping.
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  /// Token rows without padding, over all ranks.
  int64_t tokens = 0;
  /// In the order of Objective::metrics().
  std::vector<double> metrics;
  /// Some rank's stop token was set before this step.
  bool stop_requested = false;
};

/// Mean of an evaluation over all rows.
struct APUS_API EvaluationReport {
  double loss = 0.0;
  std::vector<double> metrics;
  int64_t rows = 0;
  double seconds = 0.0;
};

/// What runs between log lines: sums over the steps since the last one. Part of a checkpoint, so that a resumed
/// run prints the lines that an uninterrupted one prints.
struct APUS_API LogWindow {
  int64_t steps = 0;
  double loss = 0.0;
  std::vector<double> metrics;

  void add(const StepReport& report);
};

/// Where a run stands; with weights and optimizer states all that a checkpoint needs.
struct APUS_API TrainerState {
  int64_t global_step = 0;
  int64_t max_steps = 0;
  data::LoaderCursor cursor;
  LogWindow window;
  /// Of training, over all attempts.
  double elapsed_seconds = 0.0;
  /// Trained so far.
  int64_t tokens = 0;
  /// ObjectiveMemory::save; empty for objectives without one.
  std::vector<double> objective;
};

/// A checkpoint's trainer_state.json.
APUS_API nlohmann::ordered_json to_json(const TrainerState& state);
/// Reads it back. Throws DataError naming `source` and the key.
APUS_API TrainerState trainer_state_from_json(const nlohmann::json& json, const std::string& source);

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
};

/// What a run reports to its host; every function may be empty. Called on all ranks at the same steps.
struct APUS_API TrainerCallbacks {
  std::function<void(const StepReport&)> on_step;
  /// A log line is due: on rank 0 the line and its JSON record, elsewhere called alike.
  std::function<void(const std::string& line, const nlohmann::ordered_json& record)> on_log;
  /// A checkpoint is due.
  std::function<void(const TrainerState&)> on_save;
};

/// Surroundings of a trainer; the pointers outlive it.
struct APUS_API TrainerContext {
  Clock* clock = nullptr;
  Logger* logger = nullptr;
  /// Set: finish the running step, save, return.
  const std::atomic<bool>* stop = nullptr;
  TrainerCallbacks callbacks;
};

/// How a run ended.
struct APUS_API RunSummary {
  int64_t steps = 0;
  double last_loss = 0.0;
  /// False: stopped by the stop token.
  bool finished = false;
  double seconds = 0.0;
};

/// The training loop: accumulation, one division a step, schedule, log lines, evaluation, checkpoint cadence.
///
/// step() runs one optimizer step over this rank's micro-batches; run() does the whole job over a dataset.
/// Collectives: a step: one all_reduce of 8 * (3 + divisors) bytes (divisors, tokens, status, stop), the engine's own, one all_reduce
///              of 8 * (1 + metrics) bytes (the report). An evaluation: one all_reduce of 8 * (2 * divisors + metrics) bytes.
/// Failure:     whatever one rank throws inside run() or evaluate() aborts the communicator, so that the others stop.
/// Throws: DataError and the like from making batches, on the rank that failed; CommError with its message on
///         the others; Error if loss or gradient norm is not finite (on all ranks alike).
class APUS_API Trainer final {
 public:
  Trainer(parallel::ShardedModel& model, std::shared_ptr<const Objective> objective, TrainerOptions options,
          TrainerContext context);

  /// One step at this rate. Every rank passes equally many micro-batches; empty ones are allowed.
  StepReport step(const std::vector<data::Batch>& micro_batches, double learning_rate);

  /// Trains over the dataset from `state` on; evaluates on `held_out` (may be null) at eval_steps and at the end.
  RunSummary run(std::shared_ptr<const data::Dataset> train, std::shared_ptr<const data::Dataset> held_out,
                 TrainerState state = {});

  /// Loss and metrics over all rows of a dataset, without tape.
  EvaluationReport evaluate(const data::Dataset& dataset);

 private:
  struct Run;
  struct Exchange;

  Exchange exchange_header(const std::vector<data::Batch>& micro_batches, const std::optional<std::string>& error);
  StepReport run_step(const std::vector<data::Batch>& micro_batches, double learning_rate,
                      const std::optional<std::string>& error);
  EvaluationReport evaluate_rows(const data::Dataset& dataset);
  void stopping_peers(const std::function<void()>& work);
  void check_finite(const StepReport& report) const;
  void run_one(Run& run);
  void log_step(Run& run, const StepReport& report);
  void log_evaluation(Run& run, const EvaluationReport& report);
  void save(Run& run);

  parallel::ShardedModel& model_;
  std::shared_ptr<const Objective> objective_;
  TrainerOptions options_;
  TrainerContext context_;
  ResidentPeak memory_;
};

}  // namespace apus::train
