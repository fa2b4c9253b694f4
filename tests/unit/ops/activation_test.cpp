#include "apus/ops/activation.h"

#include <ATen/ops/sigmoid.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

at::Tensor swiglu_in_double(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor wide = gate.to(at::kDouble);
  return wide * at::sigmoid(wide) * up.to(at::kDouble);
}

TEST(Swiglu, EqualsTheFormula) {
  const at::Tensor gate = random_tensor({5, 7}, 1) * 4, up = random_tensor({5, 7}, 2);
  expect_close(swiglu(gate, up), swiglu_in_double(gate, up), {.absolute = 1e-6, .relative = 1e-6});
}

TEST(Swiglu, Bf16IsRoundedTwice) {
  const at::Tensor gate = random_tensor({5, 7}, 1, at::kBFloat16),
                   up = random_tensor({5, 7}, 2, at::kBFloat16);
  const at::Tensor y = swiglu(gate, up);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  expect_close(y, swiglu_in_double(gate, up), {.absolute = 1e-6, .relative = 1.0 / 128});
}

TEST(Swiglu, HasTheGradientsOfFiniteDifferences) {
  check_gradients([](const auto& in) { return swiglu(in[0], in[1]); },
                  {random_tensor({3, 4}, 1), random_tensor({3, 4}, 2)});
}

TEST(Swiglu, RefusesOperandsThatWouldBroadcast) {
  EXPECT_THROW(swiglu(random_tensor({3, 4}, 1), random_tensor({1, 4}, 2)), ShapeError);
}

TEST(SwigluPacked, IsSwigluOfTheTwoHalves) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor wide = random_tensor({5, 20}, 1, dtype), both = wide.narrow(1, 4, 14);
    expect_equal(swiglu_packed(both), swiglu(both.narrow(1, 0, 7), both.narrow(1, 7, 7)));
  }
  EXPECT_EQ(swiglu_packed(random_tensor({0, 8}, 1)).sizes(), at::IntArrayRef({0, 4}));
}

TEST(SwigluPacked, HasTheGradientsOfFiniteDifferences) {
  check_gradients(
      [](const auto& in) {
        return swiglu_packed(in[0], {.out = {8, 8}, .grad = {0, 16}});
      },
      {random_tensor({3, 8}, 1)});
}

TEST(SwigluPacked, WritesIntoRowsThatExist) {
  const at::Tensor both = random_leaf({5, 14}, 1), room = at::empty({5, 9}, at::kFloat).fill_(-3);
  swiglu_packed_into(room.narrow(1, 1, 7), both);
  EXPECT_FALSE(room.requires_grad());
  expect_equal(room.narrow(1, 1, 7), swiglu_packed(both).detach());
  for (const int64_t column : {0, 8}) EXPECT_TRUE(room.select(1, column).eq(-3).all().item<bool>());
}

TEST(SwigluPacked, RefusesWhatDoesNotFit) {
  const at::Tensor both = random_tensor({3, 8}, 1);
  EXPECT_THROW(swiglu_packed(random_tensor({3, 7}, 1)), ShapeError);
  EXPECT_THROW(swiglu_packed(random_tensor({8}, 1)), ShapeError);
  EXPECT_THROW(swiglu_packed(both, {.out = {0, -1}}), ShapeError);
  EXPECT_THROW(swiglu_packed_into(random_tensor({3, 8}, 1), both), ShapeError);
  EXPECT_THROW(swiglu_packed_into(random_tensor({2, 4}, 1), both), ShapeError);
  EXPECT_THROW(swiglu_packed_into(random_tensor({3, 4}, 1, at::kBFloat16), both), ShapeError);
}

}  // namespace
}  // namespace apus::ops
