#include "optim/schedule_warmup.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "apus/base/error.h"

namespace apus::optim::detail {
namespace {

/// The warm-up that the three share.
struct WarmUp {
  bool is_log = true;
  double steps = 2;
  int64_t first = -1;  ///< the iteration whose value step 0 takes

  bool warming(int64_t iteration) const { return static_cast<double>(iteration) < steps; }
  /// 0 at iteration 0, 1 at its end.
  double share(int64_t iteration) const {
    const auto at = static_cast<double>(iteration);
    return is_log ? (1.0 / std::log(steps)) * std::log(at + 1.0) : at / steps;
  }
};

int64_t whole(ScheduleKwargs& kwargs, const std::string& key, double run, double fallback) {
  const double value = kwargs.number_or_auto(key, run, fallback);
  APUS_CHECK(std::floor(value) == value && std::abs(value) < 9e15, ConfigError, "lr_scheduler_kwargs: ", key,
             " must be a whole number, got ", value);
  return static_cast<int64_t>(value);
}

WarmUp warm_up(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  WarmUp warm;
  const int64_t own = std::max<int64_t>(1, options.warmup_steps);
  const int64_t steps = whole(kwargs, "warmup_num_steps", static_cast<double>(own), 1000);
  APUS_CHECK(steps >= 1, ConfigError, "lr_scheduler_kwargs: warmup_num_steps is ", steps,
             ", expected 1 or more");
  warm.steps = std::max(2.0, static_cast<double>(steps));
  warm.is_log = kwargs.choice("warmup_type", "log", {"linear", "log"}) == "log";
  warm.first = whole(kwargs, "last_batch_iteration", -1, -1);
  APUS_CHECK(warm.first >= -1, ConfigError, "lr_scheduler_kwargs: last_batch_iteration is ", warm.first,
             ", expected -1 or more");
  return warm;
}

double total_steps(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const auto run = static_cast<double>(options.total_steps);
  return static_cast<double>(whole(kwargs, "total_num_steps", run, run));
}

/// By step, out of what an iteration gives; before the first it is `lowest`. A scheduler that is told of
/// earlier iterations leaves the first step at the optimizer's own rate.
Rate by_step(const WarmUp& warm, double peak, double lowest, Rate rate) {
  return [warm, peak, lowest, rate = std::move(rate)](int64_t step) {
    if (step == 0 && warm.first >= 0) return peak;
    const int64_t iteration = warm.first + step;
    return iteration < 0 ? lowest : rate(iteration);
  };
}

}  // namespace

Rate warmup_lr(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const WarmUp warm = warm_up(options, kwargs);
  const double peak = options.learning_rate;
  const double low = kwargs.number_or_auto("warmup_min_lr", 0.0, 0.0);
  const double high = kwargs.number_or_auto("warmup_max_lr", peak, peak);
  return by_step(warm, peak, low, [=](int64_t iteration) {
    return low + (high - low) * (warm.warming(iteration) ? warm.share(iteration) : 1.0);
  });
}

Rate warmup_decay_lr(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const WarmUp warm = warm_up(options, kwargs);
  const double peak = options.learning_rate, total = total_steps(options, kwargs);
  const double low = kwargs.number_or_auto("warmup_min_lr", 0.0, 0.0);
  const double high = kwargs.number_or_auto("warmup_max_lr", peak, 0.001);
  return by_step(warm, peak, low, [=](int64_t iteration) {
    const double left = (total - static_cast<double>(iteration)) / std::max(1.0, total - warm.steps);
    return low + (high - low) * (warm.warming(iteration) ? warm.share(iteration) : std::max(0.0, left));
  });
}

Rate warmup_cosine_lr(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const WarmUp warm = warm_up(options, kwargs);
  const double peak = options.learning_rate, total = total_steps(options, kwargs);
  const double first = kwargs.number("warmup_min_ratio", 0.0), last = kwargs.number("cos_min_ratio", 0.0001);
  return by_step(warm, peak, 0.0, [=](int64_t iteration) {
    if (warm.warming(iteration)) return peak * (first + warm.share(iteration) * (1.0 - first));
    const double done = static_cast<double>(iteration) - warm.steps + 1.0;
    const double progress = std::min(1.0, done / std::max(1.0, total - warm.steps));
    const double half = (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
    return peak * std::max(0.0, last + (1.0 - last) * half);
  });
}

}  // namespace apus::optim::detail
