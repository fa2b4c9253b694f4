#include "apus/memory/staged_copy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "apus/base/error.h"

namespace apus::memory {

void staged_copy(const at::Tensor& target, const at::Tensor& source) {
  APUS_CHECK(target.numel() == source.numel() && target.is_contiguous() && source.is_contiguous(), ShapeError,
             "a staged copy takes contiguous tensors of one size, got ", target.sizes(), " <- ",
             source.sizes());
  at::NoGradGuard no_grad;
  const at::Tensor to = target.detach().view({-1}), from = source.detach().view({-1});
  if (!from.device().is_cpu() || to.device().is_cpu()) {
    to.copy_(from);
    return;
  }
  const int64_t piece = kStagingBytes / static_cast<int64_t>(from.element_size());
  for (int64_t begin = 0; begin < from.numel(); begin += piece) {
    const int64_t end = std::min(begin + piece, from.numel());
    const at::Tensor pinned = at::empty({end - begin}, from.options().pinned_memory(true));
    pinned.copy_(from.slice(0, begin, end));
    const at::Tensor part = to.slice(0, begin, end);
    if (from.scalar_type() == to.scalar_type()) {
      part.copy_(pinned, /*non_blocking=*/true);
    } else {
      part.copy_(pinned.to(to.device(), /*non_blocking=*/true));
    }
  }
}

at::Tensor staged_to(const at::Tensor& source, at::Device device, at::ScalarType dtype) {
  if (source.device() == device && source.scalar_type() == dtype) return source;
  if (!source.device().is_cpu() || device.is_cpu()) return source.detach().to(device, dtype);
  at::Tensor result =
      at::empty(source.sizes(), source.options().device(device).dtype(dtype).requires_grad(false));
  staged_copy(result, source.detach().contiguous());
  return result;
}

}  // namespace apus::memory
