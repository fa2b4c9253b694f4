#include "apus/optim/adamw.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "apus/base/error.h"
#include "optim/adamw_kernel.h"

namespace apus::optim {
namespace {

// Elements after which the compute copy is written, while the master is still in the first-level cache.
constexpr int64_t kBlock = 1024;

void check_flat(const at::Tensor& tensor, std::string_view name, int64_t count) {
  APUS_CHECK(tensor.defined(), ShapeError, "adamw_step: ", name, " is undefined");
  APUS_CHECK(tensor.dim() == 1 && tensor.numel() == count && tensor.is_contiguous(), ShapeError,
             "adamw_step: ", name, " is ", tensor.sizes(), ", expected a contiguous [", count,
             "] like the master");
  APUS_CHECK(tensor.device().is_cpu(), NotSupported, "adamw_step: ", name, " lies on ", tensor.device().str(),
             "; the fused AdamW of this build runs on the CPU only");
}

void check_fp32(const at::Tensor& tensor, std::string_view name, int64_t count) {
  check_flat(tensor, name, count);
  APUS_CHECK(tensor.scalar_type() == at::kFloat, ShapeError, "adamw_step: ", name, " is ",
             c10::toString(tensor.scalar_type()), ", expected Float");
}

void check_segments(std::span<const Segment> segments, int64_t count) {
  int64_t previous_end = 0;
  for (const Segment& segment : segments) {
    APUS_CHECK(segment.begin >= previous_end && segment.end >= segment.begin && segment.end <= count,
               ShapeError, "adamw_step: segment [", segment.begin, ", ", segment.end,
               ") must start at or after ", previous_end, " and end at or before ", count);
    previous_end = segment.end;
  }
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

float read_scalar(const at::Tensor& tensor, std::string_view name, float fallback) {
  if (!tensor.defined()) return fallback;
  APUS_CHECK(tensor.numel() == 1 && tensor.scalar_type() == at::kFloat && tensor.device().is_cpu(),
             ShapeError, "adamw_step: ", name, " must be one Float on the CPU, got ",
             c10::toString(tensor.scalar_type()), " ", tensor.sizes());
  return *tensor.const_data_ptr<float>();
}

detail::AdamwCoefficients coefficients_of(const AdamwOptions& options, const Segment& segment, float clip) {
  const double lr = options.lr * segment.lr_scale;
  const auto step = static_cast<double>(options.step);
  detail::AdamwCoefficients c;
  c.clip = clip;
  c.decay = static_cast<float>(1.0 - lr * segment.weight_decay);
  c.one_minus_beta1 = static_cast<float>(1.0 - options.beta1);
  c.beta2 = static_cast<float>(options.beta2);
  c.one_minus_beta2 = static_cast<float>(1.0 - options.beta2);
  c.minus_step_size = static_cast<float>(-lr / (1.0 - std::pow(options.beta1, step)));
  c.correction2_sqrt = static_cast<float>(std::sqrt(1.0 - std::pow(options.beta2, step)));
  c.epsilon = static_cast<float>(options.epsilon);
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

}  // namespace

void adamw_step(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                std::span<const Segment> segments, const AdamwOptions& options, const GradScaling& scaling) {
  APUS_CHECK(state.master_N.defined(), ShapeError, "adamw_step: the master is undefined");
  const int64_t count = state.master_N.numel();
  check_fp32(state.master_N, "the master", count);
  check_fp32(state.exp_avg_N, "exp_avg", count);
  check_fp32(state.exp_avg_sq_N, "exp_avg_sq", count);
  check_fp32(grad_N, "the gradient", count);
  if (compute_copy_N.defined()) {
    check_flat(compute_copy_N, "the compute copy", count);
    const at::ScalarType dtype = compute_copy_N.scalar_type();
    APUS_CHECK(dtype == at::kFloat || dtype == at::kBFloat16, ShapeError, "adamw_step: the compute copy is ",
               c10::toString(dtype), ", expected Float or BFloat16");
  }
  check_segments(segments, count);
  check_options(options);
  const float clip = read_scalar(scaling.clip_factor, "clip_factor", 1.0f);
  if (read_scalar(scaling.found_inf, "found_inf", 0.0f) != 0.0f) return;

  const detail::AdamwArrays arrays{
      state.master_N.mutable_data_ptr<float>(), state.exp_avg_N.mutable_data_ptr<float>(),
      state.exp_avg_sq_N.mutable_data_ptr<float>(), grad_N.const_data_ptr<float>()};
  for (const Segment& segment : segments) {
    const detail::AdamwCoefficients c = coefficients_of(options, segment, clip);
    for (int64_t begin = segment.begin; begin < segment.end; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, segment.end);
      detail::adamw_update(arrays, begin, end, c);
      write_copy(arrays.master, compute_copy_N, begin, end);
    }
  }
}

}  // namespace apus::optim
