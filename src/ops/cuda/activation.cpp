// The tape around the gated activation's kernels. It keeps gate and up alone.
#include "ops/activation_cuda.h"

#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/cuda/kernel_operands.h"
#include "ops/kernels/swiglu.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::Rows read(const at::Tensor& x_TF) {
  return {x_TF.const_data_ptr(), row_stride(x_TF)};
}

kernels::OutRows write(const at::Tensor& x_TF) {
  return {x_TF.mutable_data_ptr(), row_stride(x_TF)};
}

/// The halves of rows, plain aliases.
at::Tensor half(const at::Tensor& both_TG, int64_t index) {
  const int64_t width = both_TG.size(1) / 2;
  return both_TG.narrow(1, index * width, width);
}

/// All three as kernel_rows.
void forward_rows(const at::Tensor& gate_TF, const at::Tensor& up_TF, const at::Tensor& act_TF) {
  if (gate_TF.size(0) == 0) return;
  kernels::swiglu_forward({.gate = read(gate_TF),
                           .up = read(up_TF),
                           .act = write(act_TF),
                           .rows = gate_TF.size(0),
                           .columns = gate_TF.size(1)},
                          element_of(gate_TF), stream_of(gate_TF));
}

void backward_rows(const at::Tensor& gate_TF, const at::Tensor& up_TF, const at::Tensor& given_TF,
                   const at::Tensor& d_gate_TF, const at::Tensor& d_up_TF) {
  if (gate_TF.size(0) == 0) return;
  const at::Tensor d_act_TF = kernel_rows(given_TF);
  kernels::swiglu_backward({.gate = read(gate_TF),
                            .up = read(up_TF),
                            .d_act = read(d_act_TF),
                            .d_gate = write(d_gate_TF),
                            .d_up = write(d_up_TF),
                            .rows = gate_TF.size(0),
                            .columns = gate_TF.size(1)},
                           element_of(gate_TF), stream_of(gate_TF));
}

class Swiglu final : public torch::autograd::Function<Swiglu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_TF, const at::Tensor& up_TF) {
    context->save_for_backward({gate_TF, up_TF});
    const at::Tensor act_TF = result_rows(gate_TF.size(0), gate_TF.size(1), {}, gate_TF);
    forward_rows(kernel_rows(gate_TF), kernel_rows(up_TF), act_TF);
    return act_TF;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("swiglu");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gate_TF = kernel_rows(saved[0]), up_TF = kernel_rows(saved[1]);
    const at::Tensor d_gate_TF = result_rows(gate_TF.size(0), gate_TF.size(1), {}, gate_TF);
    const at::Tensor d_up_TF = result_rows(gate_TF.size(0), gate_TF.size(1), {}, gate_TF);
    backward_rows(gate_TF, up_TF, grads[0], d_gate_TF, d_up_TF);
    return {d_gate_TF, d_up_TF};
  }
};

class SwigluPacked final : public torch::autograd::Function<SwigluPacked> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given_TG, const SwigluRooms& rooms) {
    context->save_for_backward({given_TG});
    context->saved_data["before"] = rooms.grad.before;
    context->saved_data["after"] = rooms.grad.after;
    const at::Tensor gate_up_TG = kernel_rows(given_TG);
    const at::Tensor act_TF = result_rows(given_TG.size(0), given_TG.size(1) / 2, rooms.out, given_TG);
    forward_rows(half(gate_up_TG, 0), half(gate_up_TG, 1), act_TF);
    return act_TF;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("swiglu_packed");
    const RowRoom room{context->saved_data.at("before").toInt(), context->saved_data.at("after").toInt()};
    const at::Tensor gate_up_TG = kernel_rows(context->get_saved_variables()[0]);
    const at::Tensor grad_TG = result_rows(gate_up_TG.size(0), gate_up_TG.size(1), room, gate_up_TG);
    backward_rows(half(gate_up_TG, 0), half(gate_up_TG, 1), grads[0], half(grad_TG, 0), half(grad_TG, 1));
    return {grad_TG, {}};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF) {
  const c10::cuda::CUDAGuard device(gate_TF.device());
  return Swiglu::apply(gate_TF, up_TF);
}

at::Tensor swiglu_packed(const at::Tensor& gate_up_TG, const SwigluRooms& rooms) {
  const c10::cuda::CUDAGuard device(gate_up_TG.device());
  return SwigluPacked::apply(gate_up_TG, rooms);
}

void swiglu_packed_into(const at::Tensor& act_TF, const at::Tensor& gate_up_TG) {
  const c10::cuda::CUDAGuard device(gate_up_TG.device());
  const at::Tensor rows_TG = kernel_rows(gate_up_TG.detach());
  forward_rows(half(rows_TG, 0), half(rows_TG, 1), act_TF.detach());
}

}  // namespace apus::ops::cuda
