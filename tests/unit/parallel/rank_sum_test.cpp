#include "parallel/rank_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;

TEST(SumOfRanks, AddsInRankOrder) {
  // (1e8 + -1e8) + 1 = 1 in this order; any other order of fp32 gives 0.
  EXPECT_EQ(sum_of_ranks(at::tensor({1e8F, -1e8F, 1.0F}), 3).item<float>(), 1.0F);
}

TEST(SumOfRanks, Bfloat16IsAddedInFp32AndNotRounded) {
  // Each step in bf16 would stay at 256; rounding once would give 260 and not 259.
  const at::Tensor parts = at::tensor({256.0F, 1.0F, 1.0F, 1.0F}).to(at::kBFloat16);
  const at::Tensor sum = sum_of_ranks(parts, 4);
  EXPECT_EQ(sum.scalar_type(), at::kFloat);
  EXPECT_EQ(sum.item<float>(), 259.0F);
}

TEST(SumOfRanks, DoesNotDependOnWhereABufferIsCut) {
  const at::Tensor parts_NS = random_tensor({3, 640}, 5, at::kBFloat16);
  const at::Tensor whole_S = sum_of_ranks(parts_NS, 3);
  for (int64_t begin = 0; begin < 640; begin += 128) {
    const at::Tensor piece_NS = parts_NS.slice(1, begin, begin + 128).contiguous();
    EXPECT_TRUE(sum_of_ranks(piece_NS, 3).equal(whole_S.slice(0, begin, begin + 128)));
  }
}

TEST(SumOfRanks, LeavesThePartsAlone) {
  const at::Tensor parts = at::tensor({1.0F, 2.0F, 3.0F, 4.0F});
  EXPECT_TRUE(sum_of_ranks(parts, 2).equal(at::tensor({4.0F, 6.0F})));
  EXPECT_TRUE(sum_of_ranks(parts, 1).equal(parts));
  EXPECT_TRUE(parts.equal(at::tensor({1.0F, 2.0F, 3.0F, 4.0F})));
}

}  // namespace
}  // namespace apus::parallel
