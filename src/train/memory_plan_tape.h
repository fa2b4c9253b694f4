#pragma once

#include <cstdint>
#include <vector>

#include "apus/train/memory_plan.h"

namespace apus::train {

// What units keep and need while they run, in bytes. The derivation, op by op, is in
// docs/design/memory_plan.md.

/// Sizes of a micro-batch.
struct BatchSizes {
  int64_t sequences = 0;
  int64_t tokens = 0;   ///< T: rows, padding included
  int64_t targets = 0;  ///< M: supervised ones, whose hidden rows the head reads
  int64_t longest = 0;  ///< of the sequences
  bool packed = false;
};

/// What a pass needs to know besides the unit.
struct PassSizes {
  BatchSizes batch;
  at::ScalarType dtype = at::kFloat;          ///< of activations
  at::ScalarType adapter_dtype = at::kFloat;  ///< that adapters compute in
  int64_t hidden_size = 0;
  int64_t attention_heads = 0;
  bool input_needs_grad = false;
  /// Behind the last block's attention, and in its output, are the M rows that the head reads alone.
  bool reads_few = false;
  // On a GPU:
  bool has_homes = false;  ///< frozen projections lie beside their adapters
  bool deterministic = false;
  bool scale_known = false;  ///< the loss's factor of each row is known in the forward
};

/// Rows that a block has behind its attention.
inline int64_t rows_behind(const PassSizes& pass) {
  return pass.reads_few ? pass.batch.targets : pass.batch.tokens;
}

/// A moment of a unit's backward.
struct BackwardMoment {
  int64_t activations = 0;  ///< what is left of the tape, and what comes and goes
  int64_t gradients = 0;    ///< of parameters, so far
};

/// One block.
struct BlockCost {
  int64_t kept = 0;       ///< the tape's own, without the block's input and output
  int64_t plain = 0;      ///< most at one moment of a pass without tape, above the input
  int64_t recording = 0;  ///< the same of a pass with tape, the tape included
  std::vector<BackwardMoment> backward;
  int64_t gradients = 0;  ///< of all its trainable parameters
  bool trains = false;    ///< something of it is trainable
};

/// The block under kNone or kPartial (`recompute`); kBlock is kNone's, run in backward.
BlockCost block_cost(const UnitShape& block, const PassSizes& pass, parallel::Recompute recompute);

/// The loss head: final norm and chunked log-probabilities over M rows. Where reads_few holds, these are the
/// last block's output, else copies.
struct HeadCost {
  int64_t kept = 0;        ///< from forward to backward, the selected hidden rows included
  int64_t plain = 0;       ///< most at one moment without tape, the selected rows included
  int64_t recording = 0;   ///< the same with tape
  int64_t backward = 0;    ///< most at one moment of backward, what was kept included
  int64_t weight_sum = 0;  ///< of that, the weight's gradient while it is added up in fp32
  int64_t gradients = 0;   ///< of its trainable parameters
  bool trains = false;
};

/// The head with `chunk` rows of logits at a time.
HeadCost head_cost(const UnitShape& head, const PassSizes& pass, int64_t vocab_size, int64_t chunk);

}  // namespace apus::train
