#pragma once

#include "apus/nn/causal_lm.h"
#include "apus/train/job.h"
#include "apus/train/memory_plan_shape.h"

namespace apus::train {

/// Does to a model whose values do not exist what a job does to its own, and reads its shape: full training
/// and what it freezes on the model itself, adapters and copies that they replace parameters by on the shape
/// alone, as making them would take memory. Options are resolved ones. Throws:  ConfigError as
/// peft::freeze_parameters, or if nothing is trained.
ModelShape trained_shape(nn::CausalLm& model, const JobOptions& options);

}  // namespace apus::train
