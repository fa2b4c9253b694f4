// Dropout's kernel for tensors. The rows' coordinates are copied to the device once a micro-batch, through
// pinned memory, and stay with the rows: every layer's mask reads them.
#include "ops/dropout_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include <array>

#include "ops/cuda/kernel_operands.h"
#include "ops/dropout_kernel.h"
#include "ops/kernels/dropout.h"

namespace apus::ops::cuda {
namespace {

/// int32 [T, 4] on the device: ordinal, side, position, nothing.
at::Tensor copied(const SampleRows& rows, at::Device device) {
  const auto count = static_cast<int64_t>(rows.ordinals.size());
  const at::Tensor staged = at::empty({count, 4}, at::TensorOptions(at::kInt).pinned_memory(count > 0));
  auto* out = reinterpret_cast<std::array<uint32_t, 4>*>(staged.mutable_data_ptr<int32_t>());
  for (size_t i = 0; i < rows.ordinals.size(); ++i)
    out[i] = {rows.ordinals[i], rows.sides[i], rows.positions[i], 0};
  return staged.to(device, /*non_blocking=*/true);
}

bool is_readable(const at::Tensor& x_TF) {
  return x_TF.size(1) <= 1 || x_TF.stride(1) == 1;
}

}  // namespace

std::vector<at::Tensor> drop(const std::vector<at::Tensor>& xs, const Dropout& options) {
  const at::Device device = xs[0].device();
  const c10::cuda::CUDAGuard guard(device);
  kernels::DropoutRows job{.key = options.key,
                           .epoch = options.rows->epoch,
                           .threshold = detail::dropout_threshold(options.p),
                           .scale = static_cast<float>(1.0 / (1.0 - options.p)),
                           .first_feature = static_cast<uint32_t>(options.first_feature),
                           .rows = xs[0].size(0),
                           .columns = xs[0].size(1)};
  std::vector<at::Tensor> from, to;
  for (size_t i = 0; i < xs.size(); ++i) {
    from.push_back(is_readable(xs[i]) ? xs[i] : xs[i].contiguous());
    to.push_back(at::empty(xs[i].sizes(), xs[i].options()));
    job.tensors[i] = {from[i].const_data_ptr(), row_stride(from[i]), to[i].mutable_data_ptr()};
  }
  if (job.rows == 0 || job.columns == 0) return to;
  const at::Tensor coordinates =
      options.rows->on_device.get(device, [&] { return copied(*options.rows, device); });
  job.coordinates = reinterpret_cast<const uint4*>(coordinates.const_data_ptr<int32_t>());
  kernels::dropout(job, element_of(xs[0]), stream_of(xs[0]));
  return to;
}

}  // namespace apus::ops::cuda
