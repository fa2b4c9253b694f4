#pragma once

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

/// Kernels against their twins: the same inputs through both, outputs and gradients compared by their error
/// against the twin in fp32.
namespace apus::testing {

using Tensors = std::vector<at::Tensor>;
/// Maps inputs to outputs, with tape.
using TapedOp = std::function<Tensors(const Tensors& inputs)>;

/// Skips where there is no GPU.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

/// Standard normal values on the GPU that depend on the seed alone.
inline at::Tensor gpu_random(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kBFloat16) {
  at::Generator generator = at::cuda::detail::createCUDAGenerator();
  generator.set_current_seed(seed);
  return at::randn(shape, generator, at::TensorOptions(at::kFloat).device(at::kCUDA)).to(dtype);
}

/// The same as rows inside wider rows: `columns` of them from `first` on.
inline at::Tensor gpu_random_inside(int64_t rows, int64_t columns, int64_t first, int64_t behind,
                                    uint64_t seed, at::ScalarType dtype) {
  return gpu_random({rows, first + columns + behind}, seed, dtype).narrow(1, first, columns);
}

/// Fills the memory that the next results will be made of with NaN, as far as the allocator reuses it.
inline void poison_free_memory(int64_t bytes = int64_t{256} << 20) {
  const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor large = at::full({bytes / 4}, nan, options);
  Tensors small;
  for (int i = 0; i < 16; ++i) small.push_back(at::full({1 << 16}, nan, options));
}

/// Outputs, and behind them the gradients of all inputs that require one (undefined where none came).
/// `grads`: one an output; an undefined one leaves that output unused.
inline Tensors outputs_and_gradients(const TapedOp& op, const Tensors& inputs, const Tensors& grads) {
  Tensors leaves, roots, root_grads;
  for (const at::Tensor& input : inputs)
    leaves.push_back(input.detach().set_requires_grad(input.requires_grad()));
  Tensors all = op(leaves);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!grads[i].defined()) continue;
    roots.push_back(all[i]);
    root_grads.push_back(grads[i]);
  }
  torch::autograd::backward(roots, root_grads);
  for (at::Tensor& output : all) output = output.detach();
  for (size_t i = 0; i < leaves.size(); ++i)
    if (inputs[i].requires_grad()) all.push_back(leaves[i].grad());
  return all;
}

inline Tensors widened(const Tensors& tensors) {
  Tensors wide;
  for (const at::Tensor& x : tensors)
    wide.push_back(x.defined() && x.is_floating_point()
                       ? x.detach().to(at::kFloat).set_requires_grad(x.requires_grad())
                       : x);
  return wide;
}

inline double rms(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.detach().to(at::kDouble).square().mean().sqrt().item<double>();
}

/// Expects found to err from `exact` by at most 1.5 times as much as `plain`, the twin in the same dtype,
/// does, and by one rounding more where there are too few elements for a mean; fp32: by 1e-5 of exact's size.
/// NaN never passes.
inline void expect_as_good(const at::Tensor& found, const at::Tensor& plain, const at::Tensor& exact,
                           const std::string& what) {
  ASSERT_EQ(found.defined(), plain.defined()) << what;
  if (!found.defined()) return;
  ASSERT_EQ(found.sizes(), exact.sizes()) << what;
  EXPECT_EQ(found.scalar_type(), plain.scalar_type()) << what;
  const double size = rms(exact), error = rms(found.to(at::kDouble) - exact.to(at::kDouble));
  double allowed = 1e-5 * size + 1e-9;
  if (found.scalar_type() != at::kFloat) {
    allowed += 1.5 * rms(plain.to(at::kDouble) - exact.to(at::kDouble));
    if (found.numel() < 1024) allowed += size / 512;
  }
  EXPECT_LE(error, allowed) << what << ": rms of the exact result " << size;
  EXPECT_FALSE(std::isnan(error)) << what;
}

/// expect_as_good for all outputs and gradients.
inline void expect_as_good_as_twin(const TapedOp& fused, const TapedOp& twin, const Tensors& inputs,
                                   const Tensors& grads, const std::string& what) {
  poison_free_memory();
  const Tensors found = outputs_and_gradients(fused, inputs, grads);
  const Tensors plain = outputs_and_gradients(twin, inputs, grads);
  const Tensors exact = outputs_and_gradients(twin, widened(inputs), widened(grads));
  ASSERT_EQ(found.size(), exact.size()) << what;
  for (size_t i = 0; i < found.size(); ++i)
    expect_as_good(found[i], plain[i], exact[i], what + ", result " + std::to_string(i));
}

}  // namespace apus::testing
