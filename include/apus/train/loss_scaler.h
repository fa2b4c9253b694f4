#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apus/base/api.h"

namespace apus::train {

/// How the loss is scaled where the model computes in fp16: the `fp16` section of a DeepSpeed JSON, under the
/// same names and with the same defaults.
struct APUS_API Fp16Options {
  /// False: the loss is not scaled, and the other fields say nothing.
  bool enabled = false;
  /// Positive: this scale throughout; 0: a dynamic one.
  double loss_scale = 0.0;
  /// A dynamic scale starts at two to this power.
  int64_t initial_scale_power = 16;
  /// Steps without an overflow, counted from the last one, after which the scale is doubled.
  int64_t loss_scale_window = 1000;
  /// The scale is halved from the so many-th overflow on that follows its last raise.
  int64_t hysteresis = 2;
  /// A dynamic scale never falls below this.
  double min_loss_scale = 1.0;
  /// Count only overflows in a row: each step without one restores the hysteresis.
  bool consecutive_hysteresis = false;
  /// What messages begin with, as in "--deepspeed ds.json"; may be empty.
  std::string source = {};

  /// Throws:      ConfigError naming the key and its value.
  void check() const;
};

/// Where a scaler stands; part of a checkpoint.
struct APUS_API LossScalerState {
  double scale = 1.0;
  /// Steps counted, skipped ones included.
  int64_t iteration = 0;
  /// -1: none yet.
  int64_t last_overflow = -1;
  /// Overflows left until the scale is halved.
  int64_t hysteresis = 0;
  /// Overflows so far: steps that changed nothing.
  int64_t skipped = 0;

  bool operator==(const LossScalerState&) const = default;
};

/// What a checkpoint's trainer_state.json holds of it.
APUS_API nlohmann::ordered_json to_json(const LossScalerState& state);
/// Reads it back. Throws DataError naming `source` and the key.
APUS_API LossScalerState loss_scaler_state_from_json(const nlohmann::json& json, const std::string& source);

/// The factor that losses are multiplied by before backward, so that gradients in fp16 do not underflow.
///
/// Maths:       step k = 0, 1, ...; hysteresis h starts at H, the last overflow l at -1.
///              Overflow: h > 1: h -= 1; else scale = max(scale / 2, min_loss_scale), h stays 1; l = k.
///              None, and s = k - l - 1 is a positive multiple of window: scale *= 2, h = H. (s of the steps
///              before this one did not overflow.)
///              consecutive_hysteresis: h = H after each step without an overflow, and there alone.
///              A static scale never changes.
/// Determinism: bitwise: the same on every rank, as the ranks agree about overflows.
/// Throws:      ConfigError from the constructor (Fp16Options::check).
/// Source:      DeepSpeed, runtime/fp16/loss_scaler.py (DynamicLossScaler) at edaa7221, 2026; no deviation.
class APUS_API LossScaler final {
 public:
  /// What a step's gradients were.
  enum class Gradients { kFinite, kOverflowed };
  /// What a step did to the scale.
  enum class Change {
    kNone,
    kRaised,
    kLowered,
    kHysteresis,  ///< an overflow that hysteresis let pass
    kAtMinimum,   ///< an overflow that found the scale at its minimum: the run cannot go on
  };

  explicit LossScaler(const Fp16Options& options);

  double scale() const { return state_.scale; }
  bool is_dynamic() const { return options_.loss_scale == 0.0; }

  /// Counts a step. After kAtMinimum nothing has changed.
  Change update(Gradients gradients);

  const LossScalerState& state() const { return state_; }
  /// Goes on from a checkpoint. A static scale stays that of the options.
  void set_state(const LossScalerState& state);

 private:
  Change overflow();

  Fp16Options options_;
  LossScalerState state_;
};

}  // namespace apus::train
