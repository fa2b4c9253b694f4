#include "apus/ops/gemm_choices.h"

#include "ops/gemm_choices_cuda.h"

namespace apus::ops {

int64_t load_gemm_choices(const std::filesystem::path& folder, at::Device device) {
  return device.is_cuda() ? cuda::load_gemm_choices(folder, device) : 0;
}

void save_gemm_choices(const std::filesystem::path& folder, at::Device device) {
  if (device.is_cuda()) cuda::save_gemm_choices(folder, device);
}

}  // namespace apus::ops
