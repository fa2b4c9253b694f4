#pragma once

#include <ATen/core/Tensor.h>

#include "apus/data/batch.h"
#include "apus/parallel/sharded_model.h"

namespace apus::train {

/// Where a model runs.
at::Device device_of(parallel::ShardedModel& model);

/// A micro-batch where the model runs, ready to be read on the current stream. Costs nothing on the CPU, and
/// a wait of the stream (not the host) for what Trainer has sent ahead; what nobody has sent goes now.
data::Batch on_device(parallel::ShardedModel& model, const data::Batch& batch);

/// The hidden rows that a loss reads: those of supervised tokens, with the dropout of the pass.
nn::ReadRows read_rows(const data::Batch& placed, const nn::PassContext& context);

}  // namespace apus::train
