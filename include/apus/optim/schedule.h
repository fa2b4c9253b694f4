#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::optim {

/// What a learning-rate schedule is made of.
struct APUS_API ScheduleOptions {
  std::string type = "cosine";  ///< one of schedule_types()
  double learning_rate = 1e-4;  ///< the peak
  int64_t total_steps = 1;
  int64_t warmup_steps = 0;  ///< resolved, see resolve_warmup_steps
  std::string kwargs;        ///< JSON object of --lr_scheduler_kwargs; empty = {}
};

/// The learning rate as a pure function of the step: nothing to save, nothing to advance.
///
/// Maths:   lr(k) = learning_rate * f(k). Warm-up is f = k / warmup_steps, so step 0 has rate 0, but for
///          constant (none) and cosine_warmup_with_min_lr (k + 1). Behind it, with p the share of the
///          steps after warm-up that are done:
///          linear 1 - p; cosine (1 + cos(2 pi num_cycles p)) / 2; others as in transformers.
///          WarmupLR, WarmupDecayLR, WarmupCosineLR are DeepSpeed's, with its keywords and its own warm-up
///          (warmup_num_steps; "auto": warmup_steps); there step k takes the value of iteration k - 1.
/// Past the end linear stays at 0 and cosine rises again: the formula goes on.
/// Source:  transformers 5.24 get_scheduler, DeepSpeed 0.19 runtime/lr_schedules.py; same formulas in double,
///          within 1e-12 relative.
class APUS_API LrSchedule {
 public:
  /// Throws ConfigError for an unknown type or keyword (naming the nearest), a keyword that is missing or of
  /// a wrong type, or negative steps.
  explicit LrSchedule(const ScheduleOptions& options);

  /// The rate used by step `step` (the first is 0). Steps after the end follow the type's own formula.
  double lr(int64_t step) const;

  const ScheduleOptions& options() const { return options_; }

 private:
  ScheduleOptions options_;
  std::function<double(int64_t)> rate_;
};

/// The names that LrSchedule takes, sorted.
APUS_API std::vector<std::string> schedule_types();

/// The two flags that set the length of the warm-up.
struct APUS_API WarmupOptions {
  double warmup_ratio = 0.0;  ///< share of the run, used if warmup_steps is 0
  double warmup_steps = 0.0;  ///< from 1 on: steps, truncated; below 1: a share of the run
};

/// Steps of warm-up in a run of `total_steps`: a share gives ceil(total_steps * share) in double arithmetic
/// (so 0.07 of 100 steps is 8, as in transformers).
/// Throws:  ConfigError if a value is negative or not a number, or the ratio is above 1.
APUS_API int64_t resolve_warmup_steps(int64_t total_steps, const WarmupOptions& options);

}  // namespace apus::optim
