#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apus/train/trainer.h"

namespace apus::train {

/// Says by one figure which evaluation is the best, and when to give up.
/// Source: transformers' metric_for_best_model, greater_is_better and EarlyStoppingCallback.
class EvaluationJudge final {
 public:
  /// Throws:  ConfigError if metric_for_best_model is none of the figures of an evaluation (it lists them),
  /// or the
  ///          settings of early stopping are out of range.
  EvaluationJudge(const TrainerOptions& options, const std::vector<ObjectiveMetric>& metrics);

  /// Takes an evaluation into account; true if it is the best so far. One that is no finite number never is.
  /// Throws:  ConfigError if no row of the evaluation counts in the figure.
  bool judge(const EvaluationReport& report, int64_t step, std::optional<BestEvaluation>& best) const;

  /// Whether early stopping ends the run.
  bool gives_up(const std::optional<BestEvaluation>& best) const;

  /// The figure, with its prefix.
  const std::string& metric() const { return metric_; }

 private:
  bool is_better(double value, double than) const { return greater_ ? value > than : value < than; }

  std::string metric_;
  std::optional<size_t> index_;  // among the metrics; none: the loss
  bool greater_ = false;
  EarlyStopping stopping_;
};

}  // namespace apus::train
