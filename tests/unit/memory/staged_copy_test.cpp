#include "apus/memory/staged_copy.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

TEST(StagedCopy, CopiesAndConverts) {
  const at::Tensor source = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor target = at::empty({6}, at::kBFloat16);
  staged_copy(target, source);
  EXPECT_TRUE(at::equal(target, source.view({6}).to(at::kBFloat16)));
}

TEST(StagedCopy, WritesIntoALeafThatRequiresAGradient) {
  const at::Tensor target = at::empty({3}).set_requires_grad(true);
  staged_copy(target, at::arange(3, at::kFloat));
  EXPECT_EQ(target.detach()[2].item<float>(), 2.0f);
}

TEST(StagedCopy, RefusesOtherSizesAndStridedTensors) {
  EXPECT_THROW(staged_copy(at::empty({2}), at::empty({3})), ShapeError);
  EXPECT_THROW(staged_copy(at::empty({2, 2}).t(), at::empty({2, 2})), ShapeError);
}

TEST(StagedTo, ReturnsTheTensorItselfWhereNothingChanges) {
  const at::Tensor source = at::arange(3, at::kFloat);
  EXPECT_TRUE(staged_to(source, at::kCPU, at::kFloat).is_same(source));
  EXPECT_EQ(staged_to(source, at::kCPU, at::kBFloat16).scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace apus::memory
