#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "apus/base/philox.h"

/// Random tensors and comparisons for the tests of everything that computes.
namespace apus::testing {

/// Standard normal values that depend on the seed alone.
inline at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  const PhiloxSequence random(seed, "test");
  at::Tensor values = at::empty(shape, at::kFloat);
  float* out = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i)
    out[i] = static_cast<float>(random.normal(static_cast<uint64_t>(i)));
  return values.to(dtype);
}

/// The same as a leaf that requires a gradient.
inline at::Tensor random_leaf(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return random_tensor(shape, seed, dtype).detach().set_requires_grad(true);
}

/// Largest |element|, 0 for an empty tensor.
inline double largest(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.detach().to(at::kDouble).abs().max().item<double>();
}

/// Root-mean-square difference.
inline double rms_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).square().mean().sqrt().item<double>();
}

/// Allowed |found - wanted|, element by element.
struct Tolerance {
  double absolute = 0;
  double relative = 0;  ///< times |wanted|
};

/// Expects equal shapes and every element within the tolerance; NaN never passes.
inline void expect_close(const at::Tensor& found, const at::Tensor& wanted, Tolerance tolerance,
                         const std::string& what = "") {
  ASSERT_TRUE(found.defined() && wanted.defined()) << what;
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  if (found.numel() == 0) return;
  const at::Tensor want = wanted.detach().to(at::kDouble);
  const at::Tensor difference = (found.detach().to(at::kDouble) - want).abs();
  const at::Tensor allowed = want.abs() * tolerance.relative + tolerance.absolute;
  EXPECT_TRUE((difference <= allowed).all().item<bool>())
      << what << ": largest difference " << largest(difference) << ", largest wanted " << largest(want);
}

/// Expects the same dtype, shape and bits.
inline void expect_equal(const at::Tensor& found, const at::Tensor& wanted, const std::string& what = "") {
  ASSERT_TRUE(found.defined() && wanted.defined()) << what;
  EXPECT_EQ(found.scalar_type(), wanted.scalar_type()) << what;
  EXPECT_TRUE(found.equal(wanted)) << what;
}

/// Expects that the tape's gradients of sum(f * weights) agree with central differences of f along random
/// directions, for every input.
inline void check_gradients(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f,
                            const std::vector<at::Tensor>& values, double tolerance = 2e-3) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& value : values) leaves.push_back(value.detach().clone().set_requires_grad(true));
  const at::Tensor out = f(leaves);
  const at::Tensor weights = random_tensor(out.sizes(), 991);
  (out * weights).sum().backward();
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-2;
  const auto value_at = [&](size_t which, const at::Tensor& shift) {
    std::vector<at::Tensor> moved = values;
    moved[which] = moved[which] + shift;
    return (f(moved).to(at::kDouble) * weights).sum().item<double>();
  };
  for (size_t i = 0; i < values.size(); ++i) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const at::Tensor step = random_tensor(values[i].sizes(), 500 + seed) * kStep;
      const double numeric = (value_at(i, step) - value_at(i, -step)) / 2;
      const double exact = (leaves[i].grad() * step).sum().item<double>();
      EXPECT_NEAR(exact / kStep, numeric / kStep, tolerance * std::max(1.0, std::abs(exact / kStep)))
          << "input " << i << ", direction " << seed;
    }
  }
}

}  // namespace apus::testing
