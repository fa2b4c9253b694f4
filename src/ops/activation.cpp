#include "apus/ops/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>

#include "apus/base/error.h"

namespace apus::ops {

at::Tensor swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF) {
  APUS_CHECK(gate_TF.sizes() == up_TF.sizes(), ShapeError, "swiglu: gate is ", gate_TF.sizes(), " but up is ",
             up_TF.sizes());
  return at::silu(gate_TF) * up_TF;
}

}  // namespace apus::ops
