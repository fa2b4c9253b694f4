#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/api.h"

namespace apus::train {

/// Numbers of one training line, as people and logging.jsonl see them.
struct APUS_API LogLine {
  int64_t step = 0;
  int64_t max_steps = 0;
  /// Mean over the steps since the last line.
  double loss = 0.0;
  /// The step's own.
  double learning_rate = 0.0;
  double epoch = 0.0;
  /// The step's own, before clipping. Not finite: the step was skipped, and neither line nor record shows it.
  double grad_norm = 0.0;
  /// What the step's loss was multiplied by before backward; none: not scaled.
  std::optional<double> loss_scale = {};
  /// Over all ranks, padding not counted.
  double tokens_per_second = 0.0;
  int ranks = 1;
  /// Share of what the devices could do at best, between 0 and 1; none: not known for this device.
  std::optional<double> mfu = {};
  /// CPU: peak resident anonymous bytes of this rank.
  int64_t memory_bytes = 0;
  double elapsed_seconds = 0.0;
  double seconds_per_step = 0.0;
  /// Waited for batches since the last line, on this rank.
  double data_wait_ms = 0.0;
  /// Waited for collectives since the last line, on this rank.
  double comm_wait_ms = 0.0;
  std::vector<std::pair<std::string, double>> metrics;

  /// "Step 100/3000, loss=1.2345, learning_rate=5.00e-05, epoch=0.03, grad_norm=0.812, tokens/s=..., ..."
  std::string text() const;
  /// One object of logging.jsonl. Keys are those of ms-swift where it has them; "mfu" is in percent.
  nlohmann::ordered_json json() const;
};

/// Numbers of one evaluation; keys carry the prefix eval_.
struct APUS_API EvaluationLine {
  int64_t step = 0;
  int64_t max_steps = 0;
  double epoch = 0.0;
  double loss = 0.0;
  int64_t rows = 0;
  double seconds = 0.0;
  std::vector<std::pair<std::string, double>> metrics;

  std::string text() const;
  nlohmann::ordered_json json() const;
};

/// "1h 2m 3s", "2m 3s", "3s".
APUS_API std::string duration_text(double seconds);

}  // namespace apus::train
