#include "apus/ops/activation.h"

#include <ATen/ops/empty.h>

#include "ops/twins.h"
#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class SwigluOnGpu : public GpuTest {};

TapedOp packed(const SwigluRooms& rooms = {}) {
  return [rooms](const Tensors& in) { return Tensors{swiglu_packed(in[0], rooms)}; };
}

Tensors twin_packed(const Tensors& in) {
  return {twin::swiglu_packed(in[0])};
}

at::Tensor leaf(at::Tensor x) {
  return x.set_requires_grad(true);
}

std::string name(int64_t rows, int64_t columns, at::ScalarType dtype) {
  return std::to_string(rows) + " x " + std::to_string(columns) + " " + c10::toString(dtype);
}

TEST_F(SwigluOnGpu, IsAsGoodAsItsTwinInAnyShape) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
    for (const int64_t width : {8, 72, 4096, 4864, 18944})
      for (const int64_t rows : {1, 127, 129, 515}) {
        const Tensors inputs = {leaf(gpu_random({rows, 2 * width}, 1, dtype) * 3)};
        expect_as_good_as_twin(packed(), twin_packed, inputs, {gpu_random({rows, width}, 2, dtype)},
                               name(rows, width, dtype));
      }
}

TEST_F(SwigluOnGpu, TakesManyRows) {
  const Tensors inputs = {leaf(gpu_random({16385, 2 * 4864}, 1))};
  expect_as_good_as_twin(packed(), twin_packed, inputs, {gpu_random({16385, 4864}, 2)}, "16385 rows");
}

TEST_F(SwigluOnGpu, WidthsWithoutAKernelFallBackToTheTwin) {
  for (const int64_t width : {1, 12, 1001}) {
    const Tensors inputs = {leaf(gpu_random({5, 2 * width}, 1))};
    expect_as_good_as_twin(packed({.out = {8, 8}}), twin_packed, inputs, {gpu_random({5, width}, 2)},
                           name(5, width, at::kBFloat16));
  }
}

TEST_F(SwigluOnGpu, ReadsStridedRowsAndLeavesRoom) {
  constexpr int64_t kRows = 129, kWidth = 4864;
  const SwigluRooms rooms{.out = {0, 64}, .grad = {8, 128}};
  for (const int64_t first : {8, 3}) {
    const Tensors inputs = {leaf(gpu_random_inside(kRows, 2 * kWidth, first, 40, 1, at::kBFloat16))};
    expect_as_good_as_twin(packed(rooms), twin_packed, inputs,
                           {gpu_random_inside(kRows, kWidth, 16, first, 2, at::kBFloat16)},
                           "strided, from " + std::to_string(first));
  }
  at::Tensor seen;
  const at::Tensor made = leaf(gpu_random({kRows, 2 * kWidth}, 1)) * 1.0;
  made.register_hook([&](const at::Tensor& grad) { seen = grad; });
  const at::Tensor act = swiglu_packed(made, rooms);
  EXPECT_TRUE(has_room(act, rooms.out));
  EXPECT_FALSE(act.is_view());
  torch::autograd::backward({act}, {gpu_random({kRows, kWidth}, 2)});
  EXPECT_TRUE(has_room(seen, rooms.grad));
}

TEST_F(SwigluOnGpu, GateAndUpMayLieApart) {
  const auto apart = [](const Tensors& in) { return Tensors{swiglu(in[0], in[1])}; };
  const auto twin_apart = [](const Tensors& in) { return Tensors{twin::swiglu(in[0], in[1])}; };
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const Tensors inputs = {leaf(gpu_random({130, 4864}, 1, dtype)),
                            leaf(gpu_random_inside(130, 4864, 8, 8, 2, dtype))};
    expect_as_good_as_twin(apart, twin_apart, inputs, {gpu_random({130, 4864}, 3, dtype)}, "apart");
  }
}

TEST_F(SwigluOnGpu, WritesIntoRowsThatExist) {
  const at::Tensor both = leaf(gpu_random({130, 2 * 896}, 1));
  for (const int64_t first : {8, 3}) {
    const at::Tensor room = gpu_random({130, first + 896 + 16}, 2), before = room.clone();
    swiglu_packed_into(room.narrow(1, first, 896), both);
    expect_equal(room.narrow(1, 0, first), before.narrow(1, 0, first));
    expect_equal(room.narrow(1, first + 896, 16), before.narrow(1, first + 896, 16));
    const at::Tensor wide = both.detach().to(at::kFloat);
    expect_as_good(room.narrow(1, first, 896), twin::swiglu_packed(both.detach()), twin::swiglu_packed(wide),
                   "into rows");
  }
}

TEST_F(SwigluOnGpu, NoRowsGiveNoRows) {
  const Tensors found =
      outputs_and_gradients(packed(), {leaf(gpu_random({0, 64}, 1))}, {gpu_random({0, 32}, 2)});
  EXPECT_EQ(found[0].sizes(), at::IntArrayRef({0, 32}));
  EXPECT_EQ(found[1].sizes(), at::IntArrayRef({0, 64}));
}

TEST_F(SwigluOnGpu, FarOutValuesAreThoseOfTheFormula) {
  at::Tensor both = gpu_random({1, 16}, 1, at::kFloat);
  const double gates[] = {-1e30, -200, -88, -20, 20, 88, 200, 1e30};
  for (int64_t i = 0; i < 8; ++i) both[0][i].fill_(gates[i]);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Tensors inputs = {leaf(both.to(dtype))};
    const Tensors grads = {gpu_random({1, 8}, 2, dtype)};
    const Tensors found = outputs_and_gradients(packed(), inputs, grads),
                  wanted = outputs_and_gradients(twin_packed, inputs, grads);
    const double tolerance = dtype == at::kFloat ? 1e-5 : 2e-2;
    for (size_t i = 0; i < found.size(); ++i)
      expect_close(found[i], wanted[i], {.absolute = 1e-30, .relative = tolerance});
  }
}

// 57,001 x 37,888 elements: beyond 2^31.
TEST_F(SwigluOnGpu, IndicesBeyond31BitsAreRight) {
  constexpr int64_t kRows = 57001, kWidth = 18944, kTail = 9;
  const at::Tensor both =
      at::empty({kRows, 2 * kWidth}, at::TensorOptions(at::kBFloat16).device(at::kCUDA)).fill_(0.5);
  both.narrow(0, kRows - kTail, kTail).copy_(gpu_random({kTail, 2 * kWidth}, 1));
  const at::Tensor d_act =
      at::empty({kRows, kWidth}, at::TensorOptions(at::kBFloat16).device(at::kCUDA)).fill_(0.25);
  const Tensors all = outputs_and_gradients(packed(), {leaf(both)}, {d_act});
  const auto tail = [](const at::Tensor& x) { return x.detach().narrow(0, kRows - kTail, kTail).clone(); };
  const Tensors wanted = outputs_and_gradients(packed(), {leaf(tail(both))}, {tail(d_act)});
  for (size_t i = 0; i < wanted.size(); ++i) expect_equal(tail(all[i]), wanted[i]);
  const at::Tensor same = all[0].narrow(0, 0, kRows - kTail);
  EXPECT_TRUE(same.eq(same[0][0]).all().item<bool>());
}

}  // namespace
}  // namespace apus::ops
