#include "apus/ops/segment_sum.h"

#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

TEST(SegmentSum, AddsUpByTheSegmentInAnyOrder) {
  const at::Tensor x = at::tensor({1.0F, 2.0F, 4.0F, 8.0F, 16.0F}).set_requires_grad(true);
  const at::Tensor y = segment_sum(x, at::tensor({2, 0, 2, 0, 3}, at::kLong), 5);
  EXPECT_TRUE(y.equal(at::tensor({10.0F, 0.0F, 5.0F, 16.0F, 0.0F})));
  (y * at::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F})).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::tensor({3.0F, 1.0F, 3.0F, 1.0F, 4.0F})));
}

TEST(SegmentSum, NothingGivesZeros) {
  const at::Tensor none = segment_sum(at::empty({0}), at::empty({0}, at::kLong), 2);
  EXPECT_TRUE(none.equal(at::tensor({0.0F, 0.0F})));
}

TEST(SegmentSum, RefusesWhatDoesNotFit) {
  const at::Tensor x = random_tensor({3}, 1);
  EXPECT_THROW(segment_sum(x, at::tensor({0, 0}, at::kLong), 1), ShapeError);
  EXPECT_THROW(segment_sum(x, at::tensor({0, 0, 0}, at::kInt), 1), ShapeError);
  EXPECT_THROW(segment_sum(x, at::tensor({0, 0, 0}, at::kLong), -1), ShapeError);
}

}  // namespace
}  // namespace apus::ops
