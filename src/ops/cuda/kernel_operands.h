#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAStream.h>

#include "apus/base/error.h"
#include "apus/ops/row_room.h"
#include "ops/kernel_rows.h"
#include "ops/kernels/element.h"

/// From tensors to what kernels are given.
namespace apus::ops::cuda {

/// A kernel tensor's dtype.
inline kernels::Element element_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::Element::kBf16 : kernels::Element::kFp32;
}

/// The current stream of x's device.
inline cudaStream_t stream_of(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

/// empty_with_room for a kernel's result, as a tensor of its own and not a view: writing into the room later
/// is no change of the result in the eyes of the tape.
inline at::Tensor result_rows(int64_t rows, int64_t columns, RowRoom room, const at::Tensor& like) {
  const at::AutoDispatchBelowADInplaceOrView plain;
  return empty_with_room(rows, columns, kernel_room(room, like), like.options());
}

/// Throws where a gradient of a gradient is asked for, which would be silently wrong.
inline void refuse_second_derivative(const char* operation) {
  APUS_CHECK(!at::GradMode::is_enabled(), NotSupported, operation,
             " has no second derivative on a GPU; run backward without create_graph");
}

}  // namespace apus::ops::cuda
