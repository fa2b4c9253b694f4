#include "apus/optim/adamw.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <string_view>

#include "apus/base/error.h"
#include "optim/adamw_cpu.h"
#include "optim/adamw_cuda.h"

namespace apus::optim {
namespace {

void check_flat(const at::Tensor& tensor, std::string_view name, const at::Tensor& master_N) {
  APUS_CHECK(tensor.defined(), ShapeError, "adamw_step: ", name, " is undefined");
  APUS_CHECK(tensor.dim() == 1 && tensor.numel() == master_N.numel() && tensor.is_contiguous(), ShapeError,
             "adamw_step: ", name, " is ", tensor.sizes(), ", expected a contiguous [", master_N.numel(),
             "] like the master");
  APUS_CHECK(tensor.device() == master_N.device(), ShapeError, "adamw_step: ", name, " lies on ",
             tensor.device().str(), ", the master on ", master_N.device().str());
}

void check_dtype(const at::Tensor& tensor, std::string_view name, at::ScalarType dtype) {
  APUS_CHECK(tensor.scalar_type() == dtype, ShapeError, "adamw_step: ", name, " is ",
             c10::toString(tensor.scalar_type()), ", expected ", c10::toString(dtype));
}

void check_float_or_bf16(const at::Tensor& tensor, std::string_view name) {
  const at::ScalarType dtype = tensor.scalar_type();
  APUS_CHECK(dtype == at::kFloat || dtype == at::kBFloat16, ShapeError, "adamw_step: ", name, " is ",
             c10::toString(dtype), ", expected Float or BFloat16 (a compute copy may be Half)");
}

void check_tensors(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& copy_N,
                   int64_t elements) {
  const at::Tensor& master_N = state.master_N;
  APUS_CHECK(master_N.defined(), ShapeError, "adamw_step: the master is undefined");
  check_flat(master_N, "the master", master_N);
  check_float_or_bf16(master_N, "the master");
  check_flat(state.exp_avg_N, "exp_avg", master_N);
  check_dtype(state.exp_avg_N, "exp_avg", master_N.scalar_type());
  check_flat(state.exp_avg_sq_N, "exp_avg_sq", master_N);
  check_dtype(state.exp_avg_sq_N, "exp_avg_sq", master_N.scalar_type());
  check_flat(grad_N, "the gradient", master_N);
  check_float_or_bf16(grad_N, "the gradient");
  APUS_CHECK(elements == master_N.numel(), ShapeError, "adamw_step: the segments are of ", elements,
             " elements, the master has ", master_N.numel());
  if (!copy_N.defined()) return;
  check_flat(copy_N, "the compute copy", master_N);
  if (copy_N.scalar_type() != at::kHalf) check_float_or_bf16(copy_N, "the compute copy");
  APUS_CHECK(master_N.scalar_type() == at::kFloat, ShapeError,
             "adamw_step: bf16 states are the parameters; there is no compute copy of them");
}

void check_options(const AdamwOptions& options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  APUS_CHECK(options.step >= 1, ConfigError, "adamw_step: step is ", options.step,
             ", the first update is step 1");
  APUS_CHECK(std::isfinite(options.lr) && options.lr >= 0, ConfigError, "learning rate is ", options.lr,
             ", expected a finite number >= 0");
  APUS_CHECK(is_beta(options.beta1), ConfigError, "adam_beta1 is ", options.beta1,
             ", expected 0 <= beta < 1");
  APUS_CHECK(is_beta(options.beta2), ConfigError, "adam_beta2 is ", options.beta2,
             ", expected 0 <= beta < 1");
  APUS_CHECK(std::isfinite(options.epsilon) && options.epsilon >= 0, ConfigError, "adam_epsilon is ",
             options.epsilon, ", expected a finite number >= 0");
  APUS_CHECK(options.threads >= 0, ConfigError, "adamw_step: threads is ", options.threads,
             ", expected at least 1, or 0 for as many as at::get_num_threads() says");
}

void check_scalar(const at::Tensor& tensor, std::string_view name, const at::Tensor& master_N,
                  at::ScalarType dtype) {
  if (!tensor.defined()) return;
  APUS_CHECK(tensor.numel() == 1 && tensor.scalar_type() == dtype && tensor.device() == master_N.device(),
             ShapeError, "adamw_step: ", name, " must be one ", c10::toString(dtype), " on ",
             master_N.device().str(), ", got ", c10::toString(tensor.scalar_type()), " ", tensor.sizes(),
             " on ", tensor.device().str());
}

}  // namespace

void adamw_step(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                const AdamwSegments& segments, const AdamwOptions& options, const GradScaling& scaling) {
  check_tensors(state, grad_N, compute_copy_N, segments.elements());
  check_options(options);
  check_scalar(scaling.clip_factor, "clip_factor", state.master_N, at::kFloat);
  check_scalar(scaling.found_inf, "found_inf", state.master_N, at::kFloat);
  check_scalar(scaling.step, "step", state.master_N, at::kLong);
  if (state.master_N.is_cuda()) {
    return cuda::adamw_step(state, grad_N, compute_copy_N, segments, options, scaling);
  }
  APUS_CHECK(
      state.master_N.device().is_cpu() && !scaling.step.defined(), NotSupported,
      "adamw_step runs on the CPU and on CUDA devices, and takes the step as a tensor on the latter only");
  detail::adamw_step_on_cpu(state, grad_N, compute_copy_N, segments, options, scaling);
}

void adamw_step(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                std::span<const Segment> segments, const AdamwOptions& options, const GradScaling& scaling) {
  APUS_CHECK(state.master_N.defined(), ShapeError, "adamw_step: the master is undefined");
  const AdamwSegments prepared({segments.begin(), segments.end()}, state.master_N.numel(),
                               state.master_N.device());
  adamw_step(state, grad_N, compute_copy_N, prepared, options, scaling);
}

}  // namespace apus::optim
