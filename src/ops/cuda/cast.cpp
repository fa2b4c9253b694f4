// Casts with tape. ATen's rounding from fp32 to bf16 reaches copy bandwidth; its widening does not.
#include "ops/cast_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/cuda/kernel_operands.h"
#include "ops/kernels/cast.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor widened(const at::Tensor& given) {
  const at::Tensor x = given.contiguous();
  at::Tensor wide = at::empty(x.sizes(), x.options().dtype(at::kFloat));
  if (x.numel() > 0)
    kernels::widen(x.const_data_ptr(), wide.mutable_data_ptr<float>(), x.numel(), stream_of(x));
  return wide;
}

at::Tensor converted(const at::Tensor& x, at::ScalarType dtype) {
  return dtype == at::kFloat ? widened(x) : x.to(dtype);
}

class Cast final : public torch::autograd::Function<Cast> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::ScalarType dtype) {
    context->saved_data["from"] = static_cast<int64_t>(x.scalar_type());
    return converted(x, dtype);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("cast");
    return {converted(grads[0], static_cast<at::ScalarType>(context->saved_data.at("from").toInt())), {}};
  }
};

}  // namespace

at::Tensor cast(const at::Tensor& x, at::ScalarType dtype) {
  const c10::cuda::CUDAGuard device(x.device());
  return Cast::apply(x, dtype);
}

}  // namespace apus::ops::cuda
