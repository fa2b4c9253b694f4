#pragma once

#include "apus/train/cards.h"
#include "apus/train/step_time.h"

namespace apus::train {

/// What a step's states and activations on the host cost: AdamW on the processors and copies over the bus.
/// `compute` is what the card computes in the step: copies of a pass hide behind it, the update behind the
/// next micro-batch's forward.
OffloadTime offload_time(const PlanInput& input, const Card& card, const Cluster& cluster, double compute);

}  // namespace apus::train
