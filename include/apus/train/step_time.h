#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/model_spec.h"
#include "apus/train/cards.h"
#include "apus/train/memory_plan.h"

namespace apus::train {

/// Seconds of what lies on the host.
struct APUS_API OffloadTime {
  double update = 0.0;   ///< AdamW on the processors
  double copies = 0.0;   ///< between host and card
  double exposed = 0.0;  ///< what of both a step shows: the rest runs beside it
};

/// An estimate of one optimizer step, in seconds. Rates come from data sheets, so it ranks plans and shows
/// orders of magnitude; it is no measurement.
struct APUS_API StepTime {
  double matmul = 0.0;         ///< products with weights, recompute and reference passes included
  double attention = 0.0;      ///< score and value products
  double elementwise = 0.0;    ///< norms, activations, adapters' sums: bytes over memory bandwidth
  double optimizer = 0.0;      ///< AdamW's bytes over memory bandwidth; 0 where it runs on the host
  double communication = 0.0;  ///< all of it
  double exposed = 0.0;        ///< what of it computation does not hide
  double host = 0.0;           ///< what the host takes at least to record the tape and to launch kernels
  OffloadTime offload;
  /// Tokens (padding left out) that all ranks train in the step.
  double tokens = 0.0;

  double compute() const { return matmul + attention + elementwise; }
  /// A step ends neither before the card is done nor before the host is.
  double total() const { return std::max(compute() + optimizer + exposed + offload.exposed, host); }
  double tokens_per_second() const { return total() > 0 ? tokens / total() : 0.0; }
};

/// What one step costs: floating-point operations of a token, as ModelSpec::token_flops gives them for a
/// sequence of the rows' mean length.
///
/// Maths:   see docs/design/memory_plan.md: products at `sustained` x peak, attention at half of that, bytes
///          at 80 % of memory bandwidth, collectives as rings over the slowest link that they cross; what
///          runs beside backward hides behind 70 % of it. The host's part is a lower bound: one tape node and
///          one kernel for each product, norm, attention and activation, without CUDA graphs. What lies on
///          the host: AdamW at 70 % of the host's memory bandwidth, shared by its ranks, copies at the card's
///          bus.
/// Throws:  ConfigError if the job computes in bf16 and the card does not.
APUS_API StepTime estimate_step(const PlanInput& input, const models::TokenFlops& flops, const Card& card,
                                const Cluster& cluster = {});

/// What training one token asks for, as mfu counts it: forward and backward, and a reference's forward; the
/// head at supervised tokens alone. Not what recompute or attention's backward repeat, nor adapters' own
/// products.
APUS_API double flops_per_token(const PlanInput& input, const models::TokenFlops& flops);

/// The assumptions of estimate_step, one a line, for whoever prints its result.
APUS_API std::vector<std::string> step_time_assumptions(const Card& card, const Cluster& cluster);

}  // namespace apus::train
