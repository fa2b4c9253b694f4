#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "apus/base/clock.h"
#include "apus/data/dataset.h"
#include "apus/data/loader.h"
#include "apus/optim/schedule.h"
#include "apus/train/trainer.h"
#include "train/evaluation_judge.h"
#include "train/step_sums.h"

namespace apus::train {

/// Seconds since a time that Clock::steady_now gave.
double seconds_since(const Clock& clock, Clock::Duration start);

/// What the ranks know of a step before its first forward.
struct Trainer::Exchange {
  std::vector<int64_t> weights;
  int64_t tokens = 0;
  bool stop = false;
};

/// A step whose figures nobody has read yet.
struct Trainer::Queued {
  std::vector<data::Batch> micro_batches;  // for the names of rows
  Exchange header;
  double learning_rate = 0.0;
  int64_t step = 0;
  std::optional<ComingValues> values = {};  // losses, metrics, norm: on a GPU
  std::optional<StepReport> report = {};    // complete: on the CPU
  data::LoaderCursor cursor = {};           // of run(): where the data stands behind it
};

/// Everything that lives as long as one call of run().
struct Trainer::Run {
  std::shared_ptr<const data::Dataset> held_out;
  TrainerState state;
  data::StepPlan plan;
  EvaluationJudge judge;
  std::optional<data::Loader> loader = {};
  std::optional<optim::LrSchedule> schedule = {};
  Clock::Duration start{};
  double elapsed_before = 0.0;
  double step_end = 0.0;  // seconds from start to the end of the step that is counted
  int64_t first_step = 0;          // of this attempt
  int64_t saved_step = 0;          // what the newest checkpoint holds
  data::LoaderCursor cursor = {};  // behind the step that is counted
  double window_start = 0.0;       // elapsed seconds at the last log line
  int64_t window_tokens = 0;
  double window_data_wait = 0.0;
  double window_comm_wait = 0.0;
  double last_loss = 0.0;
  bool stopped = false;
  bool gave_up = false;

  double epoch() const {
    return static_cast<double>(state.global_step) / static_cast<double>(plan.steps_per_epoch());
  }
  bool is_over() const { return stopped || gave_up || state.global_step >= state.max_steps; }
};

}  // namespace apus::train
