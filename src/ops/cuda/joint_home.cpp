#include "apus/ops/joint_home.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/joint_linear_cuda.h"
#include "ops/kernels/joint_home.h"

namespace apus::ops {

bool cuda::load_home(const std::vector<HomeSegment>& segments) {
  kernels::HomeAdapters adapters{.count = static_cast<int>(segments.size())};
  if (segments.empty() || segments.size() > kernels::HomeAdapters::kMost) return false;
  const at::Tensor& first = segments[0].a_into;
  adapters.in = first.size(1);
  adapters.room = first.size(0);
  adapters.row_stride = first.stride(0);
  bool aligned = adapters.in % 8 == 0 && adapters.row_stride % 8 == 0;
  const auto address_of = [&](const at::Tensor& x) {
    void* address = x.defined() ? const_cast<void*>(x.const_data_ptr()) : nullptr;
    aligned = aligned && reinterpret_cast<uintptr_t>(address) % 16 == 0;
    return address;
  };
  for (size_t index = 0; index < segments.size(); ++index) {
    const HomeSegment& segment = segments[index];
    adapters.parts[index] = {.a = address_of(segment.a_RD),
                             .b = address_of(segment.b_OR),
                             .a_into = address_of(segment.a_into),
                             .b_into = address_of(segment.b_into),
                             .rank = segment.a_RD.defined() ? segment.a_RD.size(0) : 0,
                             .out = segment.b_into.size(0),
                             .scaling = static_cast<float>(segment.scaling)};
  }
  if (!aligned) return false;
  const c10::cuda::CUDAGuard guard(first.device());
  kernels::load_home(adapters,
                     first.scalar_type() == at::kBFloat16 ? kernels::Element::kBf16 : kernels::Element::kFp32,
                     c10::cuda::getCurrentCUDAStream());
  return true;
}

}  // namespace apus::ops
