#include "apus/train/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"

namespace apus::train {
namespace {

constexpr double kFactor = 2.0;
constexpr int64_t kLargestPower = 127;  // fp32's: losses and gradients' factors are fp32

}  // namespace

void Fp16Options::check() const {
  const std::string where = (source.empty() ? "" : source + ": ") + "fp16.";
  APUS_CHECK(std::isfinite(loss_scale) && loss_scale >= 0.0, ConfigError, where,
             "loss_scale must be 0 (dynamic) or positive, got ", loss_scale);
  APUS_CHECK(initial_scale_power >= 0 && initial_scale_power <= kLargestPower, ConfigError, where,
             "initial_scale_power must be 0 to ", kLargestPower, ", got ", initial_scale_power);
  APUS_CHECK(loss_scale_window >= 1, ConfigError, where, "loss_scale_window must be at least 1, got ",
             loss_scale_window);
  APUS_CHECK(hysteresis >= 1, ConfigError, where, "hysteresis must be at least 1, got ", hysteresis);
  APUS_CHECK(std::isfinite(min_loss_scale) && min_loss_scale > 0.0, ConfigError, where,
             "min_loss_scale must be positive, got ", min_loss_scale);
  const double start = std::exp2(static_cast<double>(initial_scale_power));
  APUS_CHECK(loss_scale > 0.0 || min_loss_scale <= start, ConfigError, where, "min_loss_scale ",
             min_loss_scale, " is above the scale that a run starts with, ", start,
             " (2 to the initial_scale_power ", initial_scale_power, "): lower one, or raise the other");
}

nlohmann::ordered_json to_json(const LossScalerState& state) {
  return {{"scale", state.scale},
          {"iteration", state.iteration},
          {"last_overflow", state.last_overflow},
          {"hysteresis", state.hysteresis},
          {"skipped", state.skipped}};
}

LossScalerState loss_scaler_state_from_json(const nlohmann::json& json, const std::string& source) {
  const JsonView view(json, source);
  return {.scale = view.require<double>("scale"),
          .iteration = view.require<int64_t>("iteration"),
          .last_overflow = view.require<int64_t>("last_overflow"),
          .hysteresis = view.require<int64_t>("hysteresis"),
          .skipped = view.require<int64_t>("skipped")};
}

LossScaler::LossScaler(const Fp16Options& options) : options_(options) {
  options_.check();
  state_.scale =
      is_dynamic() ? std::exp2(static_cast<double>(options_.initial_scale_power)) : options_.loss_scale;
  state_.hysteresis = options_.hysteresis;
}

LossScaler::Change LossScaler::overflow() {
  if (state_.hysteresis > 1) {
    state_.hysteresis -= 1;
    return Change::kHysteresis;
  }
  if (state_.scale == options_.min_loss_scale) return Change::kAtMinimum;
  state_.scale = std::max(state_.scale / kFactor, options_.min_loss_scale);
  return Change::kLowered;
}

LossScaler::Change LossScaler::update(Gradients gradients) {
  const bool overflowed = gradients == Gradients::kOverflowed;
  Change change = Change::kNone;
  if (is_dynamic() && overflowed) {
    change = this->overflow();
    if (change == Change::kAtMinimum) return change;
    state_.last_overflow = state_.iteration;
  } else if (is_dynamic()) {
    const int64_t stable = state_.iteration - state_.last_overflow - 1;
    const bool raises = stable > 0 && stable % options_.loss_scale_window == 0;
    if (raises || options_.consecutive_hysteresis) state_.hysteresis = options_.hysteresis;
    if (raises) {
      state_.scale *= kFactor;
      change = Change::kRaised;
    }
  }
  state_.iteration += 1;
  state_.skipped += overflowed ? 1 : 0;
  return change;
}

void LossScaler::set_state(const LossScalerState& state) {
  const double scale = state_.scale;
  state_ = state;
  if (!is_dynamic()) state_.scale = scale;
}

}  // namespace apus::train
