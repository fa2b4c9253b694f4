#pragma once

#include "apus/ops/gemm_choices.h"

namespace apus::ops::cuda {

/// As apus::ops::load_gemm_choices, for a GPU.
int64_t load_gemm_choices(const std::filesystem::path& folder, at::Device device);
/// As apus::ops::save_gemm_choices, for a GPU.
void save_gemm_choices(const std::filesystem::path& folder, at::Device device);

}  // namespace apus::ops::cuda
