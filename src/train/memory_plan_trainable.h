#pragma once

#include "apus/train/job.h"
#include "apus/train/memory_plan_shape.h"

namespace apus::train {

/// Does to a frozen shape what the job does to its model: adapters and the copies that they replace
/// parameters by, or the parameters that full training trains. Options are resolved ones. Throws: ConfigError
/// if nothing is trained.
void make_trainable(ModelShape& model, const JobOptions& options);

}  // namespace apus::train
