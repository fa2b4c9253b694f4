#pragma once

#include <cstdint>
#include <functional>

#include "apus/optim/schedule.h"
#include "optim/schedule_kwargs.h"

namespace apus::optim::detail {

// DeepSpeed's schedules: rates themselves, not shares of the peak. "auto" stands for the run's own: its peak,
// its steps, its warm-up (at least one step). Step k of a run takes the value of batch iteration
// last_batch_iteration + k, as DeepSpeed's scheduler moves on behind a step; the iteration before the first
// has the lowest rate. Source: DeepSpeed 0.19, deepspeed/runtime/lr_schedules.py.

/// A rate by step.
using Rate = std::function<double(int64_t)>;

/// From warmup_min_lr (0) to warmup_max_lr (the peak) over warmup_num_steps (1000), then constant.
Rate warmup_lr(const ScheduleOptions& options, ScheduleKwargs& kwargs);

/// The same with warmup_max_lr 0.001 by default, then in a line to 0 at total_num_steps.
Rate warmup_decay_lr(const ScheduleOptions& options, ScheduleKwargs& kwargs);

/// From warmup_min_ratio (0) to 1 of the peak, then half a cosine to cos_min_ratio (0.0001) of it.
Rate warmup_cosine_lr(const ScheduleOptions& options, ScheduleKwargs& kwargs);

}  // namespace apus::optim::detail
