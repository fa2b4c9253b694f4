#include "cli/growing_segments.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/AllocatorConfig.h>

#include "apus/memory/device_memory.h"

namespace apus::cli {

bool cuda::grow_segments(int gpu) {
  constexpr int64_t kBytes = int64_t{4} << 20;  // of the pool for large tensors
  at::globalContext().lazyInitDevice(at::kCUDA);
  memory::use_expandable_segments();
  try {
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu));
    return at::empty({kBytes}, at::TensorOptions(at::kByte).device(device)).defined();
  } catch (const c10::Error&) {
    c10::CachingAllocator::setAllocatorSettings("expandable_segments:False");
    return false;
  }
}

}  // namespace apus::cli
