// The tape around the norm's kernels. Two operations share them: both give a normed tensor and a second
// output that the residual path goes on from (x itself, or the sum), and both get x's gradient from one pass.
#include "ops/norm_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/cuda/kernel_operands.h"
#include "ops/kernels/norm.h"
#include "ops/kernels/partial_sums.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

static_assert(kernels::max_norm_columns(kernels::Element::kFp32) == 4 * kMaxNormVectors);
static_assert(kernels::max_norm_columns(kernels::Element::kBf16) == 8 * kMaxNormVectors);

struct Normed {
  at::Tensor normed_TD;
  at::Tensor scale_T;
};

/// Norms x, or x + residual, which then goes into `sum`.
Normed forward_rows(const at::Tensor& given_TD, const at::Tensor& given_residual_TD, const at::Tensor& sum_TD,
                    const at::Tensor& given_weight_D, double eps, RowRoom room) {
  const at::Tensor x_TD = kernel_rows(given_TD), weight_D = kernel_rows(given_weight_D.unsqueeze(0));
  const at::Tensor residual_TD = given_residual_TD.defined() ? kernel_rows(given_residual_TD) : at::Tensor();
  const int64_t rows = x_TD.size(0), columns = x_TD.size(1);
  Normed result{result_rows(rows, columns, room, x_TD), at::empty({rows}, x_TD.options().dtype(at::kFloat))};
  if (rows == 0) return result;
  kernels::NormForward job{.x = x_TD.const_data_ptr(),
                           .x_stride = row_stride(x_TD),
                           .weight = weight_D.const_data_ptr(),
                           .normed = result.normed_TD.mutable_data_ptr(),
                           .normed_stride = row_stride(result.normed_TD),
                           .scale = result.scale_T.mutable_data_ptr<float>(),
                           .rows = rows,
                           .columns = columns,
                           .eps = static_cast<float>(eps)};
  if (residual_TD.defined()) {
    job.residual = residual_TD.const_data_ptr();
    job.residual_stride = row_stride(residual_TD);
    job.sum = sum_TD.mutable_data_ptr();
  }
  kernels::norm_forward(job, element_of(x_TD), stream_of(x_TD));
  return result;
}

struct Gradients {
  at::Tensor dx_TD;
  at::Tensor dw_D;
};

/// What the tape wants.
struct Wanted {
  bool x = false;
  bool weight = false;
};

/// `saved`: what was normed, the weight, the scales. `grads`: of the norm and of what passed by; either may
/// be undefined.
Gradients backward_rows(const variable_list& saved, const variable_list& grads, Wanted wanted, RowRoom room) {
  if (!grads[0].defined()) return {wanted.x ? grads[1] : at::Tensor(), {}};
  const at::Tensor x_TD = kernel_rows(saved[0]), weight_D = kernel_rows(saved[1].unsqueeze(0));
  const at::Tensor d_normed_TD = kernel_rows(grads[0]);
  const at::Tensor d_passed_TD = grads[1].defined() && wanted.x ? kernel_rows(grads[1]) : at::Tensor();
  const int64_t rows = x_TD.size(0), columns = x_TD.size(1);
  Gradients result;
  if (wanted.x) result.dx_TD = result_rows(rows, columns, room, x_TD);
  if (wanted.weight) result.dw_D = at::empty({columns}, x_TD.options());
  if (rows == 0) {
    if (wanted.weight) result.dw_D.zero_();
    return result;
  }
  const kernels::Element element = element_of(x_TD);
  kernels::NormBackward job{.x = x_TD.const_data_ptr(),
                            .x_stride = row_stride(x_TD),
                            .weight = weight_D.const_data_ptr(),
                            .scale = saved[2].const_data_ptr<float>(),
                            .d_normed = d_normed_TD.const_data_ptr(),
                            .d_normed_stride = row_stride(d_normed_TD),
                            .rows = rows,
                            .columns = columns};
  if (d_passed_TD.defined()) {
    job.d_passed = d_passed_TD.const_data_ptr();
    job.d_passed_stride = row_stride(d_passed_TD);
  }
  if (wanted.x) {
    job.dx = result.dx_TD.mutable_data_ptr();
    job.dx_stride = row_stride(result.dx_TD);
  }
  at::Tensor partials;
  if (wanted.weight) {
    partials = at::empty({kernels::norm_partials(rows, columns, element), columns},
                         x_TD.options().dtype(at::kFloat));
    job.partials = partials.mutable_data_ptr<float>();
  }
  kernels::norm_backward(job, element, stream_of(x_TD));
  if (wanted.weight)
    kernels::sum_partials(job.partials, partials.size(0), columns, result.dw_D.mutable_data_ptr(), element,
                          stream_of(x_TD));
  return result;
}

class PassingNorm final : public torch::autograd::Function<PassingNorm> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x_TD, const at::Tensor& weight_D,
                               double eps, const RmsNormRooms& rooms) {
    const Normed made = forward_rows(x_TD, {}, {}, weight_D, eps, rooms.normed);
    context->save_for_backward({x_TD, weight_D, made.scale_T});
    context->saved_data["before"] = rooms.grad.before;
    context->saved_data["after"] = rooms.grad.after;
    context->set_materialize_grads(false);
    return {made.normed_TD, x_TD};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("rms_norm_residual");
    const RowRoom room{context->saved_data.at("before").toInt(), context->saved_data.at("after").toInt()};
    Gradients found =
        backward_rows(context->get_saved_variables(), grads,
                      {.x = context->needs_input_grad(0), .weight = context->needs_input_grad(1)}, room);
    return {std::move(found.dx_TD), std::move(found.dw_D), {}, {}};
  }
};

class AddingNorm final : public torch::autograd::Function<AddingNorm> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x_TD,
                               const at::Tensor& residual_TD, const at::Tensor& weight_D, double eps) {
    const at::Tensor sum_TD = result_rows(x_TD.size(0), x_TD.size(1), {}, x_TD);
    const Normed made = forward_rows(x_TD, residual_TD, sum_TD, weight_D, eps, {});
    context->save_for_backward({sum_TD, weight_D, made.scale_T});
    context->set_materialize_grads(false);
    return {made.normed_TD, sum_TD};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("add_rms_norm");
    const bool for_x = context->needs_input_grad(0), for_residual = context->needs_input_grad(1);
    const Gradients found =
        backward_rows(context->get_saved_variables(), grads,
                      {.x = for_x || for_residual, .weight = context->needs_input_grad(2)}, {});
    return {for_x ? found.dx_TD : at::Tensor(), for_residual ? found.dx_TD : at::Tensor(), found.dw_D, {}};
  }
};

}  // namespace

ResidualRmsNorm rms_norm_residual(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps,
                                  const RmsNormRooms& rooms) {
  const c10::cuda::CUDAGuard device(x_TD.device());
  variable_list both = PassingNorm::apply(x_TD, weight_D, eps, rooms);
  return {std::move(both[0]), std::move(both[1])};
}

AddRmsNorm add_rms_norm(const at::Tensor& x_TD, const at::Tensor& residual_TD, const at::Tensor& weight_D,
                        double eps) {
  const c10::cuda::CUDAGuard device(x_TD.device());
  variable_list both = AddingNorm::apply(x_TD, residual_TD, weight_D, eps);
  return {std::move(both[0]), std::move(both[1])};
}

}  // namespace apus::ops::cuda
