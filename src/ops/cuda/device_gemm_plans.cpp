#include "ops/cuda/device_gemm_plans.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cublasLt.h>

#include <cctype>
#include <string>
#include <system_error>

#include "apus/base/file.h"
#include "ops/gemm_choices_cuda.h"

namespace apus::ops {
namespace {

int64_t index_of(at::Device device) {
  return device.has_index() ? device.index() : c10::cuda::current_device();
}

/// A file for each kind of card and version of cuBLASLt: an algorithm means nothing to another one.
std::filesystem::path file_of(const std::filesystem::path& folder, int64_t device) {
  std::string card = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device))->name;
  for (char& letter : card)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '-';
  return folder / ("gemm-" + card + "-" + std::to_string(cublasLtGetVersion()) + ".txt");
}

}  // namespace

GemmPlans& cuda::device_gemm_plans() {
  static GemmPlans plans;
  return plans;
}

int64_t cuda::load_gemm_choices(const std::filesystem::path& folder, at::Device device) {
  const int64_t index = index_of(device);
  const std::filesystem::path file = file_of(folder, index);
  std::error_code absent;
  if (!std::filesystem::is_regular_file(file, absent)) return 0;
  return device_gemm_plans().read(read_file(file), index);
}

void cuda::save_gemm_choices(const std::filesystem::path& folder, at::Device device) {
  const int64_t index = index_of(device);
  std::filesystem::create_directories(folder);
  FileWriter writer(file_of(folder, index));
  writer.write(device_gemm_plans().text(index));
  writer.finish();
}

}  // namespace apus::ops
