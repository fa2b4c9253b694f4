#include "apus/memory/device_memory.h"

#include "apus/base/error.h"

namespace apus::memory {
namespace {

[[noreturn]] void refuse(at::Device device) {
  throw NotSupported(detail::concat("the memory of ", device.str(),
                                    " cannot be counted: this apus was built without CUDA; configure with "
                                    "-DAPUS_CUDA=ON"));
}

}  // namespace

DeviceMemory device_memory(at::Device device) {
  refuse(device);
}

void reset_peak_memory(at::Device device) {
  refuse(device);
}

void limit_device_memory(at::Device device, int64_t) {
  refuse(device);
}

void release_cached_memory(at::Device device) {
  refuse(device);
}

void use_expandable_segments() {
  refuse(at::kCUDA);
}

}  // namespace apus::memory
