#pragma once

#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/model_spec.h"
#include "apus/train/cards.h"
#include "apus/train/memory_plan.h"

namespace apus::train {

/// An estimate of one optimizer step, in seconds. Rates come from data sheets, so it ranks plans and shows
/// orders of magnitude; it is no measurement.
struct APUS_API StepTime {
  double matmul = 0.0;         ///< products with weights, recompute and reference passes included
  double attention = 0.0;      ///< score and value products
  double elementwise = 0.0;    ///< norms, activations, adapters' sums: bytes over memory bandwidth
  double optimizer = 0.0;      ///< AdamW's bytes over memory bandwidth
  double communication = 0.0;  ///< all of it
  double exposed = 0.0;        ///< what of it computation does not hide
  /// Tokens (padding left out) that all ranks train in the step.
  double tokens = 0.0;

  double compute() const { return matmul + attention + elementwise; }
  double total() const { return compute() + optimizer + exposed; }
  double tokens_per_second() const { return total() > 0 ? tokens / total() : 0.0; }
};

/// What one step costs: floating-point operations of a token, as ModelSpec::token_flops gives them for a
/// sequence of the rows' mean length.
///
/// Maths:   see docs/design/memory_plan.md: products at `sustained` x peak, attention at half of that, bytes
/// at
///          80 % of memory bandwidth, collectives as rings over the slowest link that they cross; what runs
///          beside backward hides behind 70 % of it.
/// Throws:  ConfigError if the job computes in bf16 and the card does not.
APUS_API StepTime estimate_step(const PlanInput& input, const models::TokenFlops& flops, const Card& card,
                                const Cluster& cluster = {});

/// The assumptions of estimate_step, one a line, for whoever prints its result.
APUS_API std::vector<std::string> step_time_assumptions(const Card& card, const Cluster& cluster);

}  // namespace apus::train
