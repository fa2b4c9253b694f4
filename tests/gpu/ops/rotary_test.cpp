#include "apus/ops/rotary.h"

#include <ATen/ops/arange.h>

#include "ops/twins.h"
#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class RotaryOnGpu : public GpuTest {};

at::Tensor leaf(at::Tensor x) {
  return x.set_requires_grad(true);
}

/// cos and sin of random positions; the halves differ, as the contract allows.
Tensors tables(int64_t rows, int64_t head_dim, at::ScalarType dtype) {
  const at::Tensor angles = gpu_random({rows, head_dim}, 77, at::kFloat) * 3;
  return {angles.cos().to(dtype), angles.sin().to(dtype)};
}

/// qkv, cos, sin [, q weight, k weight] -> q, k, v.
TapedOp fused(const QkvHeads& heads, RowRoom room = {}) {
  return [=](const Tensors& in) {
    const QkNorm norm = in.size() > 3 ? QkNorm{in[3], in[4], 1e-6} : QkNorm{};
    const Qkv made = rotary_qkv(in[0], heads, in[1], in[2], norm, room);
    return Tensors{made.q_TNH, made.k_TKH, made.v_TKH};
  };
}

TapedOp by_twin(const QkvHeads& heads) {
  return [=](const Tensors& in) {
    const QkNorm norm = in.size() > 3 ? QkNorm{in[3], in[4], 1e-6} : QkNorm{};
    const Qkv made = twin::rotary_qkv(in[0], heads, in[1], in[2], norm);
    return Tensors{made.q_TNH, made.k_TKH, made.v_TKH};
  };
}

Tensors inputs_of(const QkvHeads& heads, int64_t rows, at::ScalarType dtype) {
  const Tensors angles = tables(rows, heads.head_dim, dtype);
  return {leaf(gpu_random({rows, heads.columns()}, 1, dtype)), angles[0], angles[1]};
}

Tensors with_norms(Tensors inputs, const QkvHeads& heads) {
  const at::ScalarType dtype = inputs[0].scalar_type();
  inputs.push_back(leaf(gpu_random({heads.head_dim}, 5, dtype)));
  inputs.push_back(leaf(gpu_random({heads.head_dim}, 6, dtype)));
  return inputs;
}

Tensors grads_of(const QkvHeads& heads, int64_t rows, at::ScalarType dtype) {
  return {gpu_random({rows, heads.heads, heads.head_dim}, 2, dtype),
          gpu_random({rows, heads.kv_heads, heads.head_dim}, 3, dtype),
          gpu_random({rows, heads.kv_heads, heads.head_dim}, 4, dtype)};
}

std::string name(const QkvHeads& heads, int64_t rows, at::ScalarType dtype) {
  return std::to_string(rows) + " rows of " + std::to_string(heads.heads) + "/" +
         std::to_string(heads.kv_heads) + " x " + std::to_string(heads.head_dim) + " " + c10::toString(dtype);
}

// 96 has kernels without norms alone, 6 none.
const QkvHeads kHeads[] = {{28, 4, 128}, {14, 2, 64}, {40, 8, 128}, {3, 3, 256},
                           {1, 1, 32},   {5, 1, 64},  {6, 2, 96},   {4, 2, 6}};

TEST_F(RotaryOnGpu, SplitsAndJoinsAsWellAsItsTwin) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
    for (const QkvHeads& heads : kHeads)
      for (const int64_t rows : {1, 127, 129, 1030})
        expect_as_good_as_twin(fused(heads, {8, 64}), by_twin(heads), inputs_of(heads, rows, dtype),
                               grads_of(heads, rows, dtype), name(heads, rows, dtype));
}

TEST_F(RotaryOnGpu, NormsHeadsAsWellAsItsTwin) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
    for (const QkvHeads& heads : kHeads)
      for (const int64_t rows : {1, 127, 129, 1030})
        expect_as_good_as_twin(fused(heads, {8, 64}), by_twin(heads),
                               with_norms(inputs_of(heads, rows, dtype), heads), grads_of(heads, rows, dtype),
                               "norms, " + name(heads, rows, dtype));
}

TEST_F(RotaryOnGpu, FrozenNormsAndUnusedHeadsAreRight) {
  const QkvHeads heads{14, 2, 64};
  Tensors inputs = with_norms(inputs_of(heads, 130, at::kBFloat16), heads);
  Tensors grads = grads_of(heads, 130, at::kBFloat16);
  for (const size_t missing : {0, 1, 2}) {
    Tensors some = grads;
    some[missing] = at::Tensor();
    const std::string what = "without output " + std::to_string(missing);
    expect_as_good_as_twin(fused(heads), by_twin(heads), {inputs[0], inputs[1], inputs[2]}, some, what);
    if (missing == 2) continue;  // the twin then has no gradient of the weight of what is missing
    some[missing] = grads[missing] * 0;
    expect_as_good_as_twin(fused(heads), by_twin(heads), inputs, some, what + ", norms");
  }
  for (const size_t weight : {3, 4}) inputs[weight] = inputs[weight].detach();
  expect_as_good_as_twin(fused(heads), by_twin(heads), inputs, grads, "frozen norms");
}

TEST_F(RotaryOnGpu, ReadsStridedRowsAndLeavesRoom) {
  const QkvHeads heads{28, 4, 128};
  constexpr int64_t kRows = 129;
  for (const int64_t first : {8, 3}) {
    for (const bool normed : {false, true}) {
      Tensors inputs = inputs_of(heads, kRows, at::kBFloat16);
      inputs[0] = leaf(gpu_random_inside(kRows, heads.columns(), first, 40, 1, at::kBFloat16));
      if (normed) inputs = with_norms(std::move(inputs), heads);
      Tensors grads = grads_of(heads, kRows, at::kBFloat16);
      // Heads of a wider row, as a fused gradient would have them.
      grads[0] = gpu_random_inside(kRows, 28 * 128, first, 24, 8, at::kBFloat16).unflatten(1, {28, 128});
      expect_as_good_as_twin(fused(heads, {0, 192}), by_twin(heads), inputs, grads,
                             "strided, from " + std::to_string(first));
    }
  }
  const Tensors inputs = inputs_of(heads, kRows, at::kBFloat16);
  at::Tensor seen;
  const at::Tensor made = inputs[0] * 1.0;
  made.register_hook([&](const at::Tensor& grad) { seen = grad; });
  const Qkv split = rotary_qkv(made, heads, inputs[1], inputs[2], {}, {0, 192});
  EXPECT_TRUE(split.q_TNH.is_contiguous() && split.k_TKH.is_contiguous() && split.v_TKH.is_contiguous());
  torch::autograd::backward({split.q_TNH}, {grads_of(heads, kRows, at::kBFloat16)[0]});
  EXPECT_TRUE(has_room(seen, {0, 192}));
  EXPECT_EQ(largest(seen.narrow(1, 32 * 128, 4 * 128)), 0.0);
}

TEST_F(RotaryOnGpu, QueriesAndKeysMayLieApart) {
  const auto apart = [](const Tensors& in) {
    const Rotated turned = rotary(in[0], in[1], in[2], in[3]);
    return Tensors{turned.q_TNH, turned.k_TKH};
  };
  const auto twin_apart = [](const Tensors& in) {
    const Rotated turned = twin::rotary(in[0], in[1], in[2], in[3]);
    return Tensors{turned.q_TNH, turned.k_TKH};
  };
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
    for (const int64_t head_dim : {64, 128, 96, 6}) {
      const Tensors angles = tables(129, head_dim, dtype);
      const Tensors inputs = {
          leaf(gpu_random_inside(129, 4 * head_dim, 16, 32, 1, dtype).unflatten(1, {4, head_dim})),
          leaf(gpu_random({129, 2, head_dim}, 2, dtype)), angles[0], angles[1]};
      const Tensors grads = {gpu_random({129, 4, head_dim}, 3, dtype),
                             gpu_random({129, 2, head_dim}, 4, dtype)};
      expect_as_good_as_twin(apart, twin_apart, inputs, grads, "apart, " + std::to_string(head_dim));
    }
}

TEST_F(RotaryOnGpu, NoRowsGiveNoRows) {
  const QkvHeads heads{14, 2, 64};
  for (const bool normed : {false, true}) {
    Tensors inputs = inputs_of(heads, 0, at::kBFloat16);
    if (normed) inputs = with_norms(std::move(inputs), heads);
    const Tensors found = outputs_and_gradients(fused(heads), inputs, grads_of(heads, 0, at::kBFloat16));
    EXPECT_EQ(found[0].sizes(), at::IntArrayRef({0, 14, 64}));
    EXPECT_EQ(found[3].sizes(), at::IntArrayRef({0, heads.columns()}));
    if (normed) {
      EXPECT_EQ(largest(found[4]) + largest(found[5]), 0.0);
    }
  }
}

TEST_F(RotaryOnGpu, ManyRowsRepeatBitwise) {
  const QkvHeads heads{28, 4, 128};
  const Tensors inputs = with_norms(inputs_of(heads, 32769, at::kBFloat16), heads);
  const Tensors grads = grads_of(heads, 32769, at::kBFloat16);
  expect_as_good_as_twin(fused(heads), by_twin(heads), inputs, grads, "32769 rows");
  const Tensors first = outputs_and_gradients(fused(heads), inputs, grads),
                again = outputs_and_gradients(fused(heads), inputs, grads);
  for (size_t i = 0; i < first.size(); ++i) expect_equal(again[i], first[i]);
}

}  // namespace
}  // namespace apus::ops
