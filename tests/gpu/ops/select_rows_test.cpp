#include "apus/ops/select_rows.h"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <limits>

#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class SelectRowsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

/// A third of the rows, some taken two or three times, the first and the last among them.
at::Tensor some_rows(int64_t total) {
  std::vector<int64_t> rows;
  for (int64_t t = 0; t < total; ++t) {
    if (t % 3 == 0 || t + 1 == total) rows.insert(rows.end(), static_cast<size_t>(1 + t % 5 % 3), t);
  }
  return at::tensor(rows, at::kLong);
}

void compare(int64_t total, int64_t width, int64_t spare, at::ScalarType dtype) {
  const at::Tensor rows = some_rows(total);
  const at::Tensor x = random_tensor({total, width}, 1, dtype);
  const at::Tensor dy = random_tensor({rows.numel(), width}, 2, dtype);
  const at::Tensor wide = at::full({total, width + spare}, std::numeric_limits<double>::quiet_NaN(),
                                   at::TensorOptions(at::kCUDA).dtype(dtype));
  wide.narrow(1, 0, width).copy_(x);
  const at::Tensor leaf = wide.narrow(1, 0, width).detach().set_requires_grad(true);
  const at::Tensor y = select_rows(leaf, rows.cuda());
  EXPECT_TRUE(y.cpu().equal(x.index_select(0, rows)));
  y.backward(dy.cuda());
  const at::Tensor exact = at::zeros({total, width}, at::kDouble).index_add(0, rows, dy.to(at::kDouble));
  const double slack = dtype == at::kBFloat16 ? 5e-3 : 1e-6;
  expect_close(leaf.grad().cpu(), exact, {.absolute = 1e-6, .relative = slack});
}

TEST_F(SelectRowsOnGpu, EqualsTheTwinBothWays) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const int64_t total : {1, 127, 129, 1000}) {
      compare(total, 64, 0, dtype);
      compare(total, 72, 8, dtype);
      compare(total, 37, 3, dtype);
    }
  }
}

TEST_F(SelectRowsOnGpu, LeavesRoomBesideItsRowsAndTakesGradientsInRowsWithRoom) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const at::Tensor rows = some_rows(129), x = random_tensor({129, 64}, 1, dtype);
    const RowRoom room{.before = 16, .after = 8};
    const at::Tensor leaf = x.cuda().set_requires_grad(true);
    const at::Tensor y = select_rows(leaf, rows.cuda(), room);
    EXPECT_TRUE(has_room(y, room));
    EXPECT_TRUE(y.cpu().equal(x.index_select(0, rows)));
    const at::Tensor dy = empty_with_room(rows.numel(), 64, room, leaf.options().requires_grad(false));
    dy.copy_(random_tensor({rows.numel(), 64}, 2, dtype));
    y.backward(dy);
    const at::Tensor exact = at::zeros({129, 64}, at::kDouble).index_add(0, rows, dy.cpu().to(at::kDouble));
    expect_close(leaf.grad().cpu(), exact,
                 {.absolute = 1e-6, .relative = dtype == at::kBFloat16 ? 5e-3 : 1e-6});
  }
}

TEST_F(SelectRowsOnGpu, NoRowsGiveZerosAndNoMatrixNothing) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor none = at::empty({0}, options.dtype(at::kLong));
  const at::Tensor x = at::full({5, 64}, 1.0, options).set_requires_grad(true);
  const at::Tensor y = select_rows(x, none);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 64}));
  y.sum().backward();
  EXPECT_EQ(largest(x.grad()), 0.0);
  EXPECT_EQ(select_rows(at::empty({0, 64}, options), none).numel(), 0);
}

TEST_F(SelectRowsOnGpu, ARowThatDoesNotExistIsNoNumber) {
  const at::Tensor x = at::full({5, 64}, 1.0, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  const at::Tensor y = select_rows(x, at::tensor({1, 5}, at::kLong).cuda());
  EXPECT_EQ(largest(y[0] - 1.0), 0.0);
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
}

}  // namespace
}  // namespace apus::ops
