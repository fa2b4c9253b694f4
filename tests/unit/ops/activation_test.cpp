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

}  // namespace
}  // namespace apus::ops
