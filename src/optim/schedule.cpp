#include "apus/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <string_view>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/nearest_name.h"
#include "optim/schedule_kwargs.h"
#include "optim/schedule_warmup.h"

namespace apus::optim {
namespace {

using detail::Rate;
using detail::ScheduleKwargs;
using Factor = std::function<double(int64_t)>;

/// Step numbers as doubles, and the shares of warm-up and run that the formulas are written in.
struct Span {
  double total;
  double warmup;

  bool warming(int64_t step) const { return static_cast<double>(step) < warmup; }
  double warmup_share(int64_t step) const { return static_cast<double>(step) / std::max(1.0, warmup); }
  double progress(int64_t step) const {
    return (static_cast<double>(step) - warmup) / std::max(1.0, total - warmup);
  }
};

Span span_of(const ScheduleOptions& options) {
  return {static_cast<double>(options.total_steps), static_cast<double>(options.warmup_steps)};
}

double half_cosine(double cycles, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress));
}

double lifted(double factor, double floor) {
  return std::max(0.0, factor * (1.0 - floor) + floor);
}

Factor constant(const ScheduleOptions&, ScheduleKwargs&) {
  return [](int64_t) { return 1.0; };
}

Factor constant_with_warmup(const ScheduleOptions& options, ScheduleKwargs&) {
  return
      [span = span_of(options)](int64_t step) { return span.warming(step) ? span.warmup_share(step) : 1.0; };
}

Factor linear(const ScheduleOptions& options, ScheduleKwargs&) {
  return [span = span_of(options)](int64_t step) {
    if (span.warming(step)) return span.warmup_share(step);
    return std::max(0.0, (span.total - static_cast<double>(step)) / std::max(1.0, span.total - span.warmup));
  };
}

Factor cosine(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  return [span = span_of(options), cycles = kwargs.number("num_cycles", 0.5)](int64_t step) {
    if (span.warming(step)) return span.warmup_share(step);
    return std::max(0.0, half_cosine(cycles, span.progress(step)));
  };
}

Factor cosine_with_restarts(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  return [span = span_of(options), cycles = kwargs.number("num_cycles", 1)](int64_t step) {
    if (span.warming(step)) return span.warmup_share(step);
    const double progress = span.progress(step);
    if (progress >= 1.0) return 0.0;
    return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * std::fmod(cycles * progress, 1.0))));
  };
}

Factor polynomial(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const double peak = options.learning_rate, last = kwargs.number("lr_end", 1e-7);
  APUS_CHECK(peak > last, ConfigError, "lr_scheduler_kwargs: lr_end is ", last,
             ", expected less than the learning rate ", peak);
  const double power = kwargs.number("power", 1.0);
  return [span = span_of(options), peak, last, power](int64_t step) {
    if (span.warming(step)) return span.warmup_share(step);
    if (static_cast<double>(step) > span.total) return last / peak;
    return ((peak - last) * std::pow(1.0 - span.progress(step), power) + last) / peak;
  };
}

Factor inverse_sqrt(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const Span span = span_of(options);
  const double timescale = kwargs.number("timescale", span.warmup > 0 ? span.warmup : 10'000);
  APUS_CHECK(timescale > 0, ConfigError, "lr_scheduler_kwargs: timescale is ", timescale,
             ", expected more than 0");
  return [span, timescale](int64_t step) {
    if (span.warming(step)) return span.warmup_share(step);
    return 1.0 / std::sqrt((static_cast<double>(step) + timescale - span.warmup) / timescale);
  };
}

/// min_lr (absolute) or min_lr_rate (share of the peak): exactly one.
double min_lr_share(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const std::optional<double> absolute = kwargs.find_number("min_lr"),
                              share = kwargs.find_number("min_lr_rate");
  APUS_CHECK(absolute.has_value() != share.has_value(), ConfigError, "lr_scheduler_kwargs: ", options.type,
             " takes exactly one of min_lr and min_lr_rate");
  if (share) return *share;
  APUS_CHECK(options.learning_rate > 0, ConfigError, "min_lr needs a learning rate above 0, use min_lr_rate");
  return *absolute / options.learning_rate;
}

Factor cosine_with_min_lr(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const double floor = min_lr_share(options, kwargs), cycles = kwargs.number("num_cycles", 0.5);
  return [span = span_of(options), floor, cycles](int64_t step) {
    if (span.warming(step)) return span.warmup_share(step);
    return lifted(half_cosine(cycles, span.progress(step)), floor);
  };
}

Factor cosine_warmup_with_min_lr(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const double floor = min_lr_share(options, kwargs), cycles = kwargs.number("num_cycles", 0.5);
  const std::optional<double> first = kwargs.find_number("warmup_lr_rate");
  return [span = span_of(options), floor, cycles, first](int64_t step) {
    if (span.warming(step) && !first) return span.warmup_share(step + 1);
    if (span.warming(step))
      return *first + (1.0 - *first) * static_cast<double>(step) / std::max(1.0, span.warmup - 1.0);
    return lifted(half_cosine(cycles, span.progress(step + 1)), floor);
  };
}

/// The rising curve from 0 to 1 of warmup_stable_decay.
double warmup_curve(const std::string& type, double progress) {
  if (type == "linear") return progress;
  if (type == "cosine") return 0.5 * (1.0 - std::cos(std::numbers::pi * progress));
  return 1.0 - std::sqrt(1.0 - progress);
}

/// The falling curve from 1 to 0.
double decay_curve(const std::string& type, double cycles, double progress) {
  if (type == "linear") return 1.0 - progress;
  if (type == "cosine") return half_cosine(cycles, progress);
  return 1.0 - std::sqrt(progress);
}

Factor warmup_stable_decay(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  const Span span = span_of(options);
  const std::optional<double> decay_steps = kwargs.find_number("num_decay_steps");
  APUS_CHECK(decay_steps && *decay_steps >= 0, ConfigError,
             "lr_scheduler_kwargs: warmup_stable_decay needs num_decay_steps >= 0");
  const double decay = *decay_steps;
  const double stable = kwargs.number("num_stable_steps", span.total - span.warmup - decay);
  const double floor = kwargs.number("min_lr_ratio", 0.0), cycles = kwargs.number("num_cycles", 0.5);
  const std::vector<std::string> curves = {"1-sqrt", "cosine", "linear"};
  const std::string rising = kwargs.choice("warmup_type", "linear", curves);
  const std::string falling = kwargs.choice("decay_type", "cosine", curves);
  return [span, decay, stable, floor, cycles, rising, falling](int64_t step) {
    if (span.warming(step)) return lifted(warmup_curve(rising, span.warmup_share(step)), floor);
    const double after_stable = static_cast<double>(step) - span.warmup - stable;
    if (after_stable < 0) return 1.0;
    if (after_stable >= decay) return floor;
    return lifted(decay_curve(falling, cycles, after_stable / std::max(1.0, decay)), floor);
  };
}

/// A factor of the peak as a rate.
template <Factor (*kMake)(const ScheduleOptions&, ScheduleKwargs&)>
Rate of_peak(const ScheduleOptions& options, ScheduleKwargs& kwargs) {
  return [peak = options.learning_rate, factor = kMake(options, kwargs)](int64_t step) {
    return peak * factor(step);
  };
}

struct ScheduleType {
  std::string_view name;
  Rate (*make)(const ScheduleOptions&, ScheduleKwargs&);
};

constexpr std::array kTypes = {
    ScheduleType{"WarmupCosineLR", detail::warmup_cosine_lr},
    ScheduleType{"WarmupDecayLR", detail::warmup_decay_lr},
    ScheduleType{"WarmupLR", detail::warmup_lr},
    ScheduleType{"constant", of_peak<constant>},
    ScheduleType{"constant_with_warmup", of_peak<constant_with_warmup>},
    ScheduleType{"cosine", of_peak<cosine>},
    ScheduleType{"cosine_warmup_with_min_lr", of_peak<cosine_warmup_with_min_lr>},
    ScheduleType{"cosine_with_min_lr", of_peak<cosine_with_min_lr>},
    ScheduleType{"cosine_with_restarts", of_peak<cosine_with_restarts>},
    ScheduleType{"inverse_sqrt", of_peak<inverse_sqrt>},
    ScheduleType{"linear", of_peak<linear>},
    ScheduleType{"polynomial", of_peak<polynomial>},
    ScheduleType{"warmup_stable_decay", of_peak<warmup_stable_decay>},
};

Rate make_rate(const ScheduleOptions& options) {
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const ScheduleType& known) { return known.name == options.type; });
  if (type == kTypes.end())
    throw ConfigError("unknown lr_scheduler_type '" + options.type + "'" +
                      did_you_mean(options.type, schedule_types()) +
                      "; known: " + join_words(schedule_types()));
  ScheduleKwargs kwargs(options.kwargs, options.type);
  Rate rate = type->make(options, kwargs);
  kwargs.check_all_used();
  return rate;
}

}  // namespace

LrSchedule::LrSchedule(const ScheduleOptions& options) : options_(options) {
  APUS_CHECK(std::isfinite(options.learning_rate) && options.learning_rate >= 0, ConfigError,
             "learning_rate is ", options.learning_rate, ", expected a finite number >= 0");
  APUS_CHECK(options.total_steps >= 0 && options.warmup_steps >= 0, ConfigError, "a schedule over ",
             options.total_steps, " steps with ", options.warmup_steps,
             " of warm-up: neither may be negative");
  rate_ = make_rate(options);
}

double LrSchedule::lr(int64_t step) const {
  return rate_(step);
}

std::vector<std::string> schedule_types() {
  std::vector<std::string> names;
  for (const ScheduleType& type : kTypes) names.emplace_back(type.name);
  return names;
}

int64_t resolve_warmup_steps(int64_t total_steps, const WarmupOptions& options) {
  APUS_CHECK(options.warmup_ratio >= 0 && options.warmup_ratio <= 1, ConfigError, "warmup_ratio is ",
             options.warmup_ratio, ", expected 0 to 1");
  APUS_CHECK(options.warmup_steps >= 0 && options.warmup_steps < 9e15, ConfigError, "warmup_steps is ",
             options.warmup_steps, ", expected 0 or more");
  if (options.warmup_steps >= 1) return static_cast<int64_t>(options.warmup_steps);
  const double share = options.warmup_steps > 0 ? options.warmup_steps : options.warmup_ratio;
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * share));
}

}  // namespace apus::optim
