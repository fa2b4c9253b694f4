#pragma once

#include <cstdint>

#include "train/memory_plan_tape.h"

namespace apus::train {

// What units keep and need on a GPU, where a block is a chain of fused operations
// (models::DecoderBlock::forward_fused). The derivation, op by op, is in docs/design/memory_plan.md.

/// Whether a block has the projections of a gated decoder, whose fused form is known.
bool is_fused_decoder(const UnitShape& block);

/// As block_cost. Weight gradients are written where they are summed, so none of them come and go.
BlockCost fused_block_cost(const UnitShape& block, const PassSizes& pass, parallel::Recompute recompute);

/// As head_cost; `chunk` 0 = as ops::token_log_probs takes it.
HeadCost fused_head_cost(const UnitShape& head, const PassSizes& pass, int64_t vocab_size, int64_t chunk);

/// Elements that the homes of a frozen block's projections have beside the weights: rooms for the adapters
/// and the products of their corners (ops::JointHome).
int64_t home_elements(const UnitShape& block);

}  // namespace apus::train
