#include "apus/ops/rope_scaling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "apus/base/error.h"

namespace apus::ops {
namespace {

/// 2i/H for i below H/2.
at::Tensor exponents(const RopeShape& shape) {
  return at::arange(0, shape.head_dim, 2, at::kFloat) / static_cast<double>(shape.head_dim);
}

/// theta^(2i/H): the wavelengths over 2 pi.
at::Tensor plain_wavelengths(const RopeShape& shape) {
  return at::pow(shape.theta, exponents(shape));
}

at::Tensor dynamic_frequencies(const RopeScaling& scaling, const RopeShape& shape, int64_t length) {
  if (length <= shape.max_position_embeddings) return plain_wavelengths(shape).reciprocal();
  const auto dim = static_cast<double>(shape.head_dim);
  const at::Tensor stretch = at::scalar_tensor(length, at::kLong) * scaling.factor /
                             static_cast<double>(shape.max_position_embeddings);
  const at::Tensor theta = (stretch - (scaling.factor - 1)).pow(dim / (dim - 2)) * shape.theta;
  return at::pow(theta, exponents(shape)).reciprocal();
}

/// The index of the frequency that turns so often within the original length.
double turning_index(double turns, const RopeScaling& scaling, const RopeShape& shape) {
  const auto length = static_cast<double>(scaling.original_max_position_embeddings);
  return static_cast<double>(shape.head_dim) * std::log(length / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(shape.theta));
}

at::Tensor yarn_frequencies(const RopeScaling& scaling, const RopeShape& shape) {
  double low = turning_index(scaling.beta_fast, scaling, shape);
  double high = turning_index(scaling.beta_slow, scaling, shape);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(shape.head_dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor ramp = ((at::arange(shape.head_dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor kept = 1 - ramp;
  const at::Tensor wavelengths = plain_wavelengths(shape);
  const at::Tensor divided = (wavelengths * scaling.factor).reciprocal();
  return divided * (1 - kept) + wavelengths.reciprocal() * kept;
}

at::Tensor llama3_frequencies(const RopeScaling& scaling, const RopeShape& shape) {
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double longest = original / scaling.low_freq_factor, shortest = original / scaling.high_freq_factor;
  const at::Tensor plain = plain_wavelengths(shape).reciprocal();
  const at::Tensor wavelengths = plain.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor divided = at::where(wavelengths > longest, plain / scaling.factor, plain);
  const at::Tensor smooth = (wavelengths.reciprocal() * original - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor between = (1 - smooth) * divided / scaling.factor + smooth * divided;
  const at::Tensor is_between = (wavelengths >= shortest).logical_and(wavelengths <= longest);
  return at::where(is_between, between, divided);
}

at::Tensor longrope_frequencies(const RopeScaling& scaling, const RopeShape& shape, int64_t length) {
  const bool beyond = length > scaling.original_max_position_embeddings;
  const std::vector<double>& divisors = beyond ? scaling.long_factor : scaling.short_factor;
  APUS_CHECK(static_cast<int64_t>(divisors.size()) == shape.head_dim / 2, ConfigError,
             "longrope: ", beyond ? "long_factor" : "short_factor", " has ", divisors.size(),
             " entries, expected head_dim / 2 = ", shape.head_dim / 2);
  return (at::tensor(divisors, at::kFloat) * plain_wavelengths(shape)).reciprocal();
}

double yarn_scale(double factor, double strength) {
  return factor <= 1 ? 1.0 : 0.1 * strength * std::log(factor) + 1.0;
}

double attention_factor(const RopeScaling& scaling) {
  if (scaling.type != RopeType::kYarn && scaling.type != RopeType::kLongrope) return 1.0;
  if (scaling.attention_factor) return *scaling.attention_factor;
  const double factor = scaling.factor;
  if (scaling.type == RopeType::kLongrope) {
    const auto original = static_cast<double>(scaling.original_max_position_embeddings);
    return factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  }
  if (scaling.mscale != 0 && scaling.mscale_all_dim != 0)
    return yarn_scale(factor, scaling.mscale) / yarn_scale(factor, scaling.mscale_all_dim);
  return yarn_scale(factor, 1.0);
}

at::Tensor inverse_frequencies(const RopeScaling& scaling, const RopeShape& shape, int64_t length) {
  switch (scaling.type) {
    case RopeType::kDefault:
      return plain_wavelengths(shape).reciprocal();
    case RopeType::kLinear:
      return plain_wavelengths(shape).reciprocal() / scaling.factor;
    case RopeType::kDynamic:
      return dynamic_frequencies(scaling, shape, length);
    case RopeType::kYarn:
      return yarn_frequencies(scaling, shape);
    case RopeType::kLlama3:
      return llama3_frequencies(scaling, shape);
    case RopeType::kLongrope:
      return longrope_frequencies(scaling, shape, length);
  }
  throw ConfigError("rope_frequencies: no such rope type");
}

}  // namespace

const std::vector<RopeType>& rope_types() {
  using enum RopeType;
  static const std::vector<RopeType> kTypes = {kDefault, kLinear, kDynamic, kYarn, kLlama3, kLongrope};
  return kTypes;
}

std::string_view rope_type_name(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kDynamic:
      return "dynamic";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kLongrope:
      return "longrope";
  }
  return "unknown";
}

bool depends_on_length(const RopeScaling& scaling) {
  return scaling.type == RopeType::kDynamic || scaling.type == RopeType::kLongrope;
}

int64_t rule_length(const RopeScaling& scaling, const RopeShape& shape, int64_t length) {
  if (scaling.type == RopeType::kDynamic) return std::max(length, shape.max_position_embeddings);
  if (scaling.type != RopeType::kLongrope) return 0;
  const int64_t original = scaling.original_max_position_embeddings;
  return length > original ? original + 1 : original;
}

RopeFrequencies rope_frequencies(const RopeScaling& scaling, const RopeShape& shape, int64_t length) {
  APUS_CHECK(shape.head_dim > 0 && shape.head_dim % 2 == 0, ConfigError,
             "rope: the head dim must be even and positive, it is ", shape.head_dim);
  return {.inv_freq = inverse_frequencies(scaling, shape, length),
          .attention_factor = attention_factor(scaling)};
}

}  // namespace apus::ops
