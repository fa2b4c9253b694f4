#include "apus/ops/segment_sum.h"

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>

#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class SegmentSumOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(SegmentSumOnGpu, EqualsTheTwinBothWays) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t count : {0, 1, 127, 129, 16384}) {
      for (const int64_t segments : {1, 2, 33}) {
        const at::Tensor of = at::arange(count, at::kLong).mul(7).remainder(segments);
        const at::Tensor values = random_tensor({count}, 1, dtype), dy = random_tensor({segments}, 2, dtype);
        const at::Tensor leaf = values.cuda().set_requires_grad(true);
        const at::Tensor sums = segment_sum(leaf, of.cuda(), segments);
        EXPECT_EQ(sums.scalar_type(), dtype);
        const at::Tensor exact =
            at::index_add(at::zeros({segments}, at::kDouble), 0, of, values.to(at::kDouble));
        expect_close(sums.cpu(), exact, {.absolute = 1e-12, .relative = dtype == at::kFloat ? 1e-6 : 1e-10});
        sums.backward(dy.cuda());
        EXPECT_TRUE(leaf.grad().cpu().equal(dy.index_select(0, of)));
      }
    }
  }
}

TEST_F(SegmentSumOnGpu, ReadsValuesThatLieApart) {
  const at::Tensor wide = random_tensor({200, 3}, 1).cuda();
  const at::Tensor of = at::arange(200, at::kLong).remainder(4).cuda();
  EXPECT_TRUE(
      segment_sum(wide.select(1, 1), of, 4).equal(segment_sum(wide.select(1, 1).contiguous(), of, 4)));
}

}  // namespace
}  // namespace apus::ops
