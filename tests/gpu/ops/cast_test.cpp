#include "apus/ops/cast.h"

#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class CastOnGpu : public GpuTest {};

TEST_F(CastOnGpu, WidensAnyCountFromAnyAddress) {
  for (const int64_t count : {0, 1, 3, 4, 5, 1023, 4096, 1'000'003})
    for (const int64_t first : {0, 1, 4, 8}) {
      const at::Tensor x = gpu_random({count + first}, 1).narrow(0, first, count);
      poison_free_memory(8 << 20);
      expect_equal(cast(x, at::kFloat), x.to(at::kFloat),
                   std::to_string(count) + " from " + std::to_string(first));
    }
}

TEST_F(CastOnGpu, TakesOtherStridesAndShapes) {
  const at::Tensor x = gpu_random({33, 50}, 1);
  expect_equal(cast(x.t(), at::kFloat), x.t().to(at::kFloat));
  expect_equal(cast(x.narrow(1, 3, 20), at::kFloat), x.narrow(1, 3, 20).to(at::kFloat));
  expect_equal(cast(x.to(at::kFloat), at::kBFloat16), x);
}

TEST_F(CastOnGpu, GradientsComeBackInTheInputsDtype) {
  for (const auto& [from, to] :
       {std::pair(at::kBFloat16, at::kFloat), std::pair(at::kFloat, at::kBFloat16)}) {
    const at::Tensor x = gpu_random({33, 50}, 1, from).set_requires_grad(true),
                     dy = gpu_random({33, 50}, 2, to);
    torch::autograd::backward({cast(x, to)}, {dy});
    expect_equal(x.grad(), dy.to(from));
  }
}

// 2^31 + 8 elements.
TEST_F(CastOnGpu, CountsBeyond31BitsAreRight) {
  constexpr int64_t kCount = (int64_t{1} << 31) + 8;
  const at::Tensor x = gpu_random({1}, 1).expand({kCount}).clone();
  x.narrow(0, kCount - 9, 9).copy_(gpu_random({9}, 2));
  const at::Tensor wide = cast(x, at::kFloat);
  expect_equal(wide.narrow(0, kCount - 9, 9), x.narrow(0, kCount - 9, 9).to(at::kFloat));
  EXPECT_TRUE(wide.narrow(0, 0, kCount - 9).eq(wide[0]).all().item<bool>());
}

}  // namespace
}  // namespace apus::ops
