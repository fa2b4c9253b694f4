#include "apus/optim/adamw.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "apus/base/error.h"
#include "optim/adamw_cuda.h"
#include "optim/adamw_kernel.h"

namespace apus::optim {
namespace {

// Elements after which the compute copy is written, while the master is still in the first-level cache.
constexpr int64_t kBlock = 1024;

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
             c10::toString(dtype), ", expected Float or BFloat16");
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
  check_float_or_bf16(copy_N, "the compute copy");
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
}

void check_scalar(const at::Tensor& tensor, std::string_view name, const at::Tensor& master_N,
                  at::ScalarType dtype) {
  if (!tensor.defined()) return;
  APUS_CHECK(tensor.numel() == 1 && tensor.scalar_type() == dtype && tensor.device() == master_N.device(),
             ShapeError, "adamw_step: ", name, " must be one ", c10::toString(dtype), " on ",
             master_N.device().str(), ", got ", c10::toString(tensor.scalar_type()), " ", tensor.sizes(),
             " on ", tensor.device().str());
}

float read_scalar(const at::Tensor& tensor, float fallback) {
  return tensor.defined() ? *tensor.const_data_ptr<float>() : fallback;
}

/// Whether the second moment's correction is folded into step size and epsilon, so that it divides by 1: for
/// bf16 states, whose kernel on the GPU has one division less that way.
enum class Folding { kNone, kSecondMoment };

detail::AdamwCoefficients coefficients_of(const AdamwOptions& options, const Segment& segment, float clip,
                                          Folding folding) {
  const double lr = options.lr * segment.lr_scale;
  const auto step = static_cast<double>(options.step);
  detail::AdamwCoefficients c;
  c.clip = clip;
  c.decay = static_cast<float>(1.0 - lr * (options.decay * segment.weight_decay));
  c.one_minus_beta1 = static_cast<float>(1.0 - options.beta1);
  c.beta2 = static_cast<float>(options.beta2);
  c.one_minus_beta2 = static_cast<float>(1.0 - options.beta2);
  const double correction2_sqrt = std::sqrt(1.0 - std::pow(options.beta2, step));
  const double folded = folding == Folding::kSecondMoment ? correction2_sqrt : 1.0;
  c.minus_step_size = static_cast<float>(-lr / (1.0 - std::pow(options.beta1, step)) * folded);
  c.correction2_sqrt = folding == Folding::kSecondMoment ? 1.0f : static_cast<float>(correction2_sqrt);
  c.epsilon = static_cast<float>(options.epsilon * folded);
  return c;
}

void write_copy(const float* master, const at::Tensor& copy_N, int64_t begin, int64_t end) {
  if (!copy_N.defined()) return;
  if (copy_N.scalar_type() == at::kFloat)
    std::copy(master + begin, master + end, copy_N.mutable_data_ptr<float>() + begin);
  else
    detail::round_to_bf16(master + begin, static_cast<uint16_t*>(copy_N.mutable_data_ptr()) + begin,
                          end - begin);
}

/// The gradient's elements [begin, end) in fp32; `room` holds kBlock floats.
const float* wide_grad(const at::Tensor& grad_N, int64_t begin, int64_t end, float* room) {
  if (grad_N.scalar_type() == at::kFloat) return grad_N.const_data_ptr<float>() + begin;
  detail::widen_bf16(static_cast<const uint16_t*>(grad_N.const_data_ptr()) + begin, room, end - begin);
  return room;
}

void update_fp32(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& copy_N,
                 const Segment& segment, const detail::AdamwCoefficients& c) {
  float room[kBlock];
  for (int64_t begin = segment.begin; begin < segment.end; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, segment.end);
    const detail::AdamwArrays arrays{
        state.master_N.mutable_data_ptr<float>() + begin, state.exp_avg_N.mutable_data_ptr<float>() + begin,
        state.exp_avg_sq_N.mutable_data_ptr<float>() + begin, wide_grad(grad_N, begin, end, room)};
    detail::adamw_update(arrays, 0, end - begin, c);
    write_copy(state.master_N.const_data_ptr<float>(), copy_N, begin, end);
  }
}

void update_bf16(const AdamwState& state, const at::Tensor& grad_N, const Segment& segment,
                 const detail::AdamwCoefficients& c, int64_t step) {
  float room[kBlock];
  for (int64_t begin = segment.begin; begin < segment.end; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, segment.end);
    const detail::AdamwArrays16 arrays{static_cast<uint16_t*>(state.master_N.mutable_data_ptr()) + begin,
                                       static_cast<uint16_t*>(state.exp_avg_N.mutable_data_ptr()) + begin,
                                       static_cast<uint16_t*>(state.exp_avg_sq_N.mutable_data_ptr()) + begin,
                                       wide_grad(grad_N, begin, end, room)};
    const detail::AdamwRounding rounding{.key = segment.rounding_key,
                                         .step = static_cast<uint32_t>(step),
                                         .first_element = segment.first_element + begin - segment.begin};
    detail::adamw_update_bf16(arrays, 0, end - begin, c, rounding);
  }
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
  const float clip = read_scalar(scaling.clip_factor, 1.0f);
  if (read_scalar(scaling.found_inf, 0.0f) != 0.0f) return;
  const bool wide = state.master_N.scalar_type() == at::kFloat;
  for (const Segment& segment : segments.list()) {
    const detail::AdamwCoefficients c =
        coefficients_of(options, segment, clip, wide ? Folding::kNone : Folding::kSecondMoment);
    if (wide) {
      update_fp32(state, grad_N, compute_copy_N, segment, c);
    } else {
      update_bf16(state, grad_N, segment, c, options.step);
    }
  }
}

void adamw_step(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                std::span<const Segment> segments, const AdamwOptions& options, const GradScaling& scaling) {
  APUS_CHECK(state.master_N.defined(), ShapeError, "adamw_step: the master is undefined");
  const AdamwSegments prepared({segments.begin(), segments.end()}, state.master_N.numel(),
                               state.master_N.device());
  adamw_step(state, grad_N, compute_copy_N, prepared, options, scaling);
}

}  // namespace apus::optim
