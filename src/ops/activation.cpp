#include "apus/ops/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/silu.h>

#include "apus/base/error.h"
#include "ops/activation_cuda.h"
#include "ops/kernel_rows.h"
#include "ops/twins.h"

namespace apus::ops {
namespace {

void check_packed(const at::Tensor& gate_up_TG) {
  APUS_CHECK(gate_up_TG.dim() == 2 && gate_up_TG.size(1) % 2 == 0, ShapeError,
             "swiglu_packed: gate and up must be [T, 2F], they are ", gate_up_TG.sizes());
}

/// Whether the kernels take both halves of these rows.
bool takes_packed(const at::Tensor& gate_up_TG) {
  return takes_rows(gate_up_TG) && gate_up_TG.size(1) % (2 * elements_a_vector(gate_up_TG)) == 0;
}

}  // namespace

at::Tensor twin::swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF) {
  return at::silu(gate_TF) * up_TF;
}

at::Tensor twin::swiglu_packed(const at::Tensor& gate_up_TG) {
  const int64_t width = gate_up_TG.size(1) / 2;
  return twin::swiglu(gate_up_TG.narrow(1, 0, width), gate_up_TG.narrow(1, width, width));
}

at::Tensor swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF) {
  APUS_CHECK(gate_TF.sizes() == up_TF.sizes(), ShapeError, "swiglu: gate is ", gate_TF.sizes(), " but up is ",
             up_TF.sizes());
  if (takes_rows(gate_TF) && gate_TF.scalar_type() == up_TF.scalar_type())
    return cuda::swiglu(gate_TF, up_TF);
  return twin::swiglu(gate_TF, up_TF);
}

at::Tensor swiglu_packed(const at::Tensor& gate_up_TG, const SwigluRooms& rooms) {
  check_packed(gate_up_TG);
  APUS_CHECK(rooms.out.before >= 0 && rooms.out.after >= 0 && rooms.grad.before >= 0 && rooms.grad.after >= 0,
             ShapeError, "swiglu_packed: rooms must not be negative");
  if (takes_packed(gate_up_TG)) return cuda::swiglu_packed(gate_up_TG, rooms);
  return twin::swiglu_packed(gate_up_TG);
}

void swiglu_packed_into(const at::Tensor& act_TF, const at::Tensor& gate_up_TG) {
  check_packed(gate_up_TG);
  APUS_CHECK(act_TF.dim() == 2 && act_TF.size(0) == gate_up_TG.size(0) &&
                 2 * act_TF.size(1) == gate_up_TG.size(1) && act_TF.scalar_type() == gate_up_TG.scalar_type(),
             ShapeError, "swiglu_packed_into: the activation is ", act_TF.scalar_type(), " ", act_TF.sizes(),
             " but gate and up are ", gate_up_TG.scalar_type(), " ", gate_up_TG.sizes());
  if (takes_packed(gate_up_TG) && kernel_rows(act_TF).is_same(act_TF))
    return cuda::swiglu_packed_into(act_TF, gate_up_TG);
  const at::NoGradGuard no_grad;
  act_TF.copy_(twin::swiglu_packed(gate_up_TG));
}

}  // namespace apus::ops
