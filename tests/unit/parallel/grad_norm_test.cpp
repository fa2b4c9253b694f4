#include "apus/parallel/grad_norm.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

TEST(GradNorm, EqualsTheSumInDouble) {
  for (const int64_t count : {0, 1, 7, 1023, 1024, 1025, 5000}) {
    const at::Tensor grad = apus::testing::random_tensor({count}, 1);
    const double wanted = grad.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(sum_of_squares(grad), wanted, 1e-12 * wanted) << count;
  }
}

TEST(GradNorm, ShardsOfWholeBlocksAddUpToTheSameBits) {
  const at::Tensor grad = apus::testing::random_tensor({4096}, 2);
  double sum = 0.0;
  for (int64_t begin = 0; begin < 4096; begin += 1024) sum += sum_of_squares(grad.slice(0, begin, begin + 1024));
  EXPECT_EQ(sum, sum_of_squares(grad));
}

TEST(GradNorm, RefusesOtherDtypes) {
  EXPECT_THROW(sum_of_squares(apus::testing::random_tensor({4}, 1, at::kBFloat16)), ShapeError);
}

}  // namespace
}  // namespace apus::parallel
