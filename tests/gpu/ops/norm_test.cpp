#include "apus/ops/norm.h"

#include <ATen/ops/alias.h>

#include "ops/twins.h"
#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class NormOnGpu : public GpuTest {};

constexpr double kEps = 1e-6;

/// x, weight -> normed, x.
TapedOp fused_norm(const RmsNormRooms& rooms = {}) {
  return [rooms](const Tensors& in) {
    const ResidualRmsNorm both = rms_norm_residual(in[0], in[1], kEps, rooms);
    return Tensors{both.normed, both.passed};
  };
}

Tensors twin_norm(const Tensors& in) {
  return {twin::rms_norm(in[0], in[1], kEps), at::alias(in[0])};
}

/// x, residual, weight -> normed, sum.
Tensors fused_sum(const Tensors& in) {
  const AddRmsNorm both = add_rms_norm(in[0], in[1], in[2], kEps);
  return {both.normed, both.sum};
}

Tensors twin_sum(const Tensors& in) {
  const at::Tensor sum = in[0] + in[1];
  return {twin::rms_norm(sum, in[2], kEps), sum};
}

at::Tensor leaf(at::Tensor x) {
  return x.set_requires_grad(true);
}

std::string name(int64_t rows, int64_t columns, at::ScalarType dtype) {
  return std::to_string(rows) + " x " + std::to_string(columns) + " " + c10::toString(dtype);
}

TEST_F(NormOnGpu, IsAsGoodAsItsTwinInAnyShape) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
    for (const int64_t columns : {8, 72, 896, 1000, 3584, 5120, 8192})
      for (const int64_t rows : {1, 127, 129, 1031}) {
        const Tensors inputs = {leaf(gpu_random({rows, columns}, 1, dtype)),
                                leaf(gpu_random({columns}, 2, dtype))};
        const Tensors grads = {gpu_random({rows, columns}, 3, dtype), gpu_random({rows, columns}, 4, dtype)};
        expect_as_good_as_twin(fused_norm(), twin_norm, inputs, grads, name(rows, columns, dtype));
      }
}

TEST_F(NormOnGpu, TakesManyRowsAndTheWidest) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{32769, 3584}, {300, 16384}}) {
    const Tensors inputs = {leaf(gpu_random({rows, columns}, 1)), leaf(gpu_random({columns}, 2))};
    const Tensors grads = {gpu_random({rows, columns}, 3), gpu_random({rows, columns}, 4)};
    expect_as_good_as_twin(fused_norm(), twin_norm, inputs, grads, name(rows, columns, at::kBFloat16));
  }
}

TEST_F(NormOnGpu, WidthsWithoutAKernelFallBackToTheTwin) {
  for (const int64_t columns : {1, 30, 1001, 20000}) {
    const Tensors inputs = {leaf(gpu_random({5, columns}, 1)), leaf(gpu_random({columns}, 2))};
    const Tensors grads = {gpu_random({5, columns}, 3), gpu_random({5, columns}, 4)};
    expect_as_good_as_twin(fused_norm({.normed = {8, 8}, .grad = {8, 8}}), twin_norm, inputs, grads,
                           name(5, columns, at::kBFloat16));
  }
}

TEST_F(NormOnGpu, ReadsStridedRowsAndLeavesRoom) {
  constexpr int64_t kRows = 129, kColumns = 896;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t first : {8, 3}) {  // 3: not a whole vector, which is copied
      const Tensors inputs = {leaf(gpu_random_inside(kRows, kColumns, first, 24, 1, dtype)),
                              leaf(gpu_random({kColumns}, 2, dtype))};
      const Tensors grads = {gpu_random_inside(kRows, kColumns, first, 8, 3, dtype),
                             gpu_random_inside(kRows, kColumns, 16, first, 4, dtype)};
      expect_as_good_as_twin(fused_norm({.normed = {64, 128}, .grad = {0, 64}}), twin_norm, inputs, grads,
                             "strided, from " + std::to_string(first));
    }
    const at::Tensor x = leaf(gpu_random({kRows, kColumns}, 1, dtype)),
                     weight = gpu_random({kColumns}, 2, dtype);
    // A product makes the gradient of x reach it as it was made, instead of being copied into a leaf's.
    at::Tensor seen;
    const at::Tensor made = x * 1.0;
    const auto rooms = RmsNormRooms{.normed = {64, 128}, .grad = {0, 64}};
    const ResidualRmsNorm both = rms_norm_residual(made, weight, kEps, rooms);
    made.register_hook([&](const at::Tensor& grad) { seen = grad; });
    EXPECT_TRUE(has_room(both.normed, rooms.normed));
    EXPECT_EQ(both.passed.const_data_ptr(), made.const_data_ptr());
    torch::autograd::backward({both.normed}, {gpu_random({kRows, kColumns}, 3, dtype)});
    EXPECT_TRUE(has_room(seen, rooms.grad));
    EXPECT_FALSE(both.normed.is_view());
  }
}

TEST_F(NormOnGpu, EitherOutputAndEitherInputMayBeAlone) {
  const at::Tensor x = gpu_random({130, 896}, 1), weight = gpu_random({896}, 2);
  const at::Tensor d_normed = gpu_random({130, 896}, 3), d_passed = gpu_random({130, 896}, 4);
  const auto frozen = [](const at::Tensor& t) { return t.detach(); };
  const auto trained = [](const at::Tensor& t) { return leaf(t.detach()); };
  expect_as_good_as_twin(fused_norm(), twin_norm, {trained(x), frozen(weight)}, {d_normed, d_passed}, "x");
  expect_as_good_as_twin(fused_norm(), twin_norm, {trained(x), frozen(weight)}, {d_normed, {}}, "norm of x");
  expect_as_good_as_twin(fused_norm(), twin_norm, {frozen(x), trained(weight)}, {d_normed, {}}, "weight");
  const Tensors passed = outputs_and_gradients(fused_norm(), {trained(x), trained(weight)}, {{}, d_passed});
  expect_equal(passed[2], d_passed);
  EXPECT_FALSE(passed[3].defined());
}

TEST_F(NormOnGpu, WithTheAdditionItRoundsTheSumFirst) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
    for (const int64_t columns : {64, 896, 3584})
      for (const int64_t rows : {1, 127, 515}) {
        const Tensors inputs = {leaf(gpu_random({rows, columns}, 1, dtype)),
                                leaf(gpu_random({rows, columns}, 5, dtype)),
                                leaf(gpu_random({columns}, 2, dtype))};
        const Tensors grads = {gpu_random({rows, columns}, 3, dtype), gpu_random({rows, columns}, 4, dtype)};
        expect_as_good_as_twin(fused_sum, twin_sum, inputs, grads, name(rows, columns, dtype));
        expect_equal(fused_sum(inputs)[1].detach(), (inputs[0] + inputs[1]).detach());
      }
}

TEST_F(NormOnGpu, NoRowsGiveNoGradientOfRowsAndZerosOfTheWeight) {
  const Tensors inputs = {leaf(gpu_random({0, 64}, 1)), leaf(gpu_random({64}, 2))};
  const Tensors found =
      outputs_and_gradients(fused_norm(), inputs, {gpu_random({0, 64}, 3), gpu_random({0, 64}, 4)});
  EXPECT_EQ(found[0].sizes(), at::IntArrayRef({0, 64}));
  EXPECT_EQ(largest(found[3]), 0.0);
}

TEST_F(NormOnGpu, NormsHeadsOfMoreDims) {
  const at::Tensor x = gpu_random({33, 7, 128}, 1), weight = gpu_random({128}, 2);
  const at::Tensor exact = twin::rms_norm(x.to(at::kFloat), weight.to(at::kFloat), kEps);
  expect_as_good(rms_norm(x, weight, kEps), twin::rms_norm(x, weight, kEps), exact, "heads");
}

TEST_F(NormOnGpu, TinyAndHugeRowsStayFinite) {
  const at::Tensor weight = gpu_random({896}, 2, at::kFloat);
  for (const double size : {1e-20, 1e-12, 1e12}) {
    const Tensors inputs = {leaf(gpu_random({9, 896}, 1, at::kFloat) * size), leaf(weight.detach())};
    const Tensors grads = {gpu_random({9, 896}, 3, at::kFloat), {}};
    const Tensors found = outputs_and_gradients(fused_norm(), inputs, grads),
                  wanted = outputs_and_gradients(twin_norm, inputs, grads);
    for (const size_t i : {0, 2, 3}) {
      EXPECT_LE(rms(found[i] - wanted[i]), 1e-4 * rms(wanted[i])) << size << ", result " << i;
      EXPECT_TRUE(found[i].isfinite().all().item<bool>()) << size;
    }
  }
}

TEST_F(NormOnGpu, RepeatsAreBitwiseEqual) {
  const Tensors inputs = {leaf(gpu_random({4100, 3584}, 1)), leaf(gpu_random({3584}, 2))};
  const Tensors grads = {gpu_random({4100, 3584}, 3), gpu_random({4100, 3584}, 4)};
  const Tensors first = outputs_and_gradients(fused_norm(), inputs, grads);
  for (int i = 0; i < 3; ++i) {
    const Tensors again = outputs_and_gradients(fused_norm(), inputs, grads);
    for (size_t j = 0; j < first.size(); ++j) expect_equal(again[j], first[j]);
  }
}

}  // namespace
}  // namespace apus::ops
