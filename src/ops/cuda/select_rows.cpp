#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <cstdint>

#include "ops/kernels/select_rows.h"
#include "ops/select_rows_cuda.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::Element element_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::Element::kBf16 : kernels::Element::kFp32;
}

bool is_aligned(const at::Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 &&
         x.stride(0) * x.element_size() % 16 == 0 && x.size(1) * x.element_size() % 16 == 0;
}

kernels::SelectedRows work_of(const at::Tensor& x, const at::Tensor& y, const at::Tensor& rows_M,
                              int64_t source_rows) {
  return {.x = x.const_data_ptr(),
          .y = y.mutable_data_ptr(),
          .index = rows_M.const_data_ptr<int64_t>(),
          .rows = rows_M.size(0),
          .source_rows = source_rows,
          .width = x.size(1),
          .x_stride = x.stride(0),
          .y_stride = y.stride(0),
          .is_aligned = is_aligned(x) && is_aligned(y)};
}

at::Tensor unit_stride(const at::Tensor& x) {
  return x.stride(1) == 1 ? x : x.contiguous();
}

class SelectRowsFunction final : public torch::autograd::Function<SelectRowsFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TD, const at::Tensor& rows_M,
                            RowRoom room) {
    const at::Tensor x = unit_stride(x_TD), rows = rows_M.contiguous();
    const at::Tensor y_MD = empty_with_room(rows.size(0), x.size(1), room, x.options());
    kernels::select_rows(work_of(x, y_MD, rows, x.size(0)), element_of(x), c10::cuda::getCurrentCUDAStream());
    context->save_for_backward({rows});
    context->saved_data["source_rows"] = x.size(0);
    return y_MD;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor dy_MD = unit_stride(gradients[0]);
    const at::Tensor rows = context->get_saved_variables()[0];
    const int64_t source_rows = context->saved_data["source_rows"].toInt();
    const at::Tensor dx_TD = at::empty({source_rows, dy_MD.size(1)}, dy_MD.options());
    kernels::select_rows_backward(work_of(dy_MD, dx_TD, rows, source_rows), element_of(dx_TD),
                                  c10::cuda::getCurrentCUDAStream());
    return {dx_TD, {}, {}};
  }
};

}  // namespace

at::Tensor select_rows(const at::Tensor& x_TD, const at::Tensor& rows_M, RowRoom room) {
  const bool is_known = x_TD.scalar_type() == at::kBFloat16 || x_TD.scalar_type() == at::kFloat;
  return is_known ? SelectRowsFunction::apply(x_TD, rows_M, room) : at::index_select(x_TD, 0, rows_M);
}

}  // namespace apus::ops::cuda
