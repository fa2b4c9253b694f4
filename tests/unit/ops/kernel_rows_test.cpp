#include "ops/kernel_rows.h"

#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

TEST(KernelRows, AreForGpusAlone) {
  EXPECT_FALSE(is_kernel_tensor(random_tensor({2, 8}, 1)));
  EXPECT_FALSE(takes_rows(random_tensor({2, 8}, 1)));
}

TEST(KernelRows, AVectorIsSixteenBytes) {
  EXPECT_EQ(elements_a_vector(random_tensor({1}, 1)), 4);
  EXPECT_EQ(elements_a_vector(random_tensor({1}, 1, at::kBFloat16)), 8);
}

TEST(KernelRows, ReadsWhatLiesInVectorsAsItIs) {
  const at::Tensor wide = random_tensor({5, 32}, 1, at::kBFloat16);
  for (const at::Tensor& rows : {wide, wide.narrow(1, 8, 16), wide.narrow(0, 1, 1), wide[0].expand({4, 32})})
    EXPECT_TRUE(kernel_rows(rows).is_same(rows)) << rows.sizes() << rows.strides();
  EXPECT_EQ(row_stride(wide.narrow(1, 8, 16)), 32);
  EXPECT_EQ(row_stride(wide[0].expand({4, 32})), 0);
  EXPECT_EQ(row_stride(wide.narrow(0, 1, 1)), 32);
}

TEST(KernelRows, CopiesWhatDoesNot) {
  const at::Tensor wide = random_tensor({5, 36}, 1, at::kBFloat16);
  for (const at::Tensor& rows : {wide.narrow(1, 4, 16), wide.narrow(1, 8, 16), wide.t().narrow(1, 0, 4),
                                 wide.select(1, 0).unsqueeze(1).expand({5, 8})}) {
    const at::Tensor copy = kernel_rows(rows);
    EXPECT_FALSE(copy.is_same(rows)) << rows.sizes() << rows.strides();
    EXPECT_TRUE(copy.is_contiguous());
    expect_equal(copy, rows.contiguous());
  }
}

TEST(KernelRows, RoomsAreWholeVectors) {
  const at::Tensor narrow = random_tensor({1, 8}, 1, at::kBFloat16), wide = random_tensor({1, 8}, 1);
  EXPECT_EQ(kernel_room({8, 64}, narrow), (RowRoom{8, 64}));
  EXPECT_TRUE(kernel_room({4, 64}, narrow).is_empty());
  EXPECT_EQ(kernel_room({4, 64}, wide), (RowRoom{4, 64}));
  EXPECT_TRUE(kernel_room({8, 2}, wide).is_empty());
}

}  // namespace
}  // namespace apus::ops
