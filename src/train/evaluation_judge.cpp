#include "train/evaluation_judge.h"

#include <cmath>

#include "apus/base/error.h"

namespace apus::train {
namespace {

constexpr const char* kPrefix = "eval_";
constexpr const char* kLoss = "eval_loss";

std::string prefixed(const std::string& name) {
  return name.starts_with(kPrefix) ? name : kPrefix + name;
}

/// Where a figure stands among the metrics; none for the loss.
std::optional<size_t> index_of(const std::string& metric, const std::vector<ObjectiveMetric>& metrics) {
  if (metric == kLoss) return std::nullopt;
  std::string known = kLoss;
  for (size_t index = 0; index < metrics.size(); ++index) {
    if (kPrefix + metrics[index].name == metric) return index;
    known += ", " + (kPrefix + metrics[index].name);
  }
  throw ConfigError(detail::concat("metric_for_best_model ", metric,
                                   " is no figure of this job's evaluation; it has ", known));
}

bool is_loss(const std::string& metric) {
  return metric.ends_with("loss") || metric.starts_with(kLoss);
}

}  // namespace

EvaluationJudge::EvaluationJudge(const TrainerOptions& options, const std::vector<ObjectiveMetric>& metrics)
    : metric_(prefixed(options.metric_for_best_model)),
      index_(index_of(metric_, metrics)),
      greater_(options.greater_is_better.value_or(!is_loss(metric_))),
      stopping_(options.early_stopping) {
  APUS_CHECK(stopping_.patience >= 0, ConfigError,
             "early stopping needs a patience of 1 or more evaluations (0: never),", " got ",
             stopping_.patience);
  APUS_CHECK(stopping_.threshold >= 0 && std::isfinite(stopping_.threshold), ConfigError,
             "the threshold of early stopping must be 0 or more, got ", stopping_.threshold);
}

bool EvaluationJudge::judge(const EvaluationReport& report, int64_t step,
                            std::optional<BestEvaluation>& best) const {
  APUS_CHECK(!index_ || report.metric_weights.at(*index_) > 0, ConfigError,
             "no row of the evaluation counts in ", metric_,
             ", so it cannot say which is the best; choose another metric_for_best_model");
  const double value = index_ ? report.metrics.at(*index_) : report.loss;
  if (!best || best->metric != metric_) {
    best.reset();
    if (!std::isfinite(value)) return false;
    best = {.metric = metric_, .value = value, .step = step};
    return true;
  }
  const bool better = is_better(value, best->value);
  const bool progress = better && std::abs(value - best->value) > stopping_.threshold;
  best->without_progress = progress ? 0 : best->without_progress + 1;
  if (!better || !std::isfinite(value)) return false;
  best->value = value;
  best->step = step;
  return true;
}

bool EvaluationJudge::gives_up(const std::optional<BestEvaluation>& best) const {
  return stopping_.patience > 0 && best && best->without_progress >= stopping_.patience;
}

}  // namespace apus::train
