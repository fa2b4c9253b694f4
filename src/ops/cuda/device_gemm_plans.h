#pragma once

#include "ops/gemm_plans.h"

namespace apus::ops::cuda {

/// What this process remembers of all its products on GPUs. It decides how fast they are, and the last bits
/// of a sum's rounding, but nothing else.
GemmPlans& device_gemm_plans();

}  // namespace apus::ops::cuda
