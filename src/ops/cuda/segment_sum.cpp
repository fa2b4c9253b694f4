#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include "ops/kernels/segment_sum.h"
#include "ops/segment_sum_cuda.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
void launch(const at::Tensor& x_M, const at::Tensor& segments_M, const at::Tensor& sums) {
  const kernels::SegmentValues<T> all{.values = x_M.const_data_ptr<T>(),
                                      .stride = x_M.stride(0),
                                      .segments = segments_M.const_data_ptr<int64_t>(),
                                      .count = x_M.size(0)};
  kernels::segment_sum(all, sums.mutable_data_ptr<T>(), sums.size(0), c10::cuda::getCurrentCUDAStream());
}

class SegmentSumFunction final : public torch::autograd::Function<SegmentSumFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_M, const at::Tensor& segments_M,
                            int64_t count) {
    const at::Tensor segments = segments_M.contiguous();
    const at::Tensor sums = at::empty({count}, x_M.options());
    if (x_M.scalar_type() == at::kDouble)
      launch<double>(x_M, segments, sums);
    else
      launch<float>(x_M, segments, sums);
    context->save_for_backward({segments});
    return sums;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {at::index_select(gradients[0], 0, context->get_saved_variables()[0]), {}, {}};
  }
};

}  // namespace

at::Tensor segment_sum(const at::Tensor& x_M, const at::Tensor& segments_M, int64_t count) {
  if (x_M.scalar_type() == at::kFloat || x_M.scalar_type() == at::kDouble)
    return SegmentSumFunction::apply(x_M, segments_M, count);
  const at::Tensor zeros = at::zeros({count}, x_M.options().requires_grad(false));
  return at::index_add(zeros, 0, segments_M, x_M);
}

}  // namespace apus::ops::cuda
