#include "apus/ops/dropout.h"

#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class DropoutOnGpu : public GpuTest {};

/// Rows of some coordinates, no two alike.
std::shared_ptr<const SampleRows> some_rows(int64_t count) {
  auto rows = std::make_shared<SampleRows>();
  rows->epoch = 3;
  for (uint32_t i = 0; i < static_cast<uint32_t>(count); ++i) {
    rows->ordinals.push_back(0xfffffff0u + i / 4);
    rows->sides.push_back(static_cast<uint8_t>(i / 2 % 2));
    rows->positions.push_back(i % 2 * 17);
  }
  return rows;
}

TEST_F(DropoutOnGpu, HasTheBitsOfTheCpu) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kHalf})
    for (const int64_t features : {1, 3, 8, 64, 100, 1100, 3584})
      for (const int64_t first : {0, 2, 64, 4095})
        for (const int64_t rows : {1, 127}) {
          const Dropout options{
              .p = 0.3, .key = 0x123456789abcdefULL, .first_feature = first, .rows = some_rows(rows)};
          const at::Tensor x = random_tensor({rows, features}, 2, dtype);
          expect_equal(dropout(x.cuda(), options).cpu(), dropout(x, options),
                       std::to_string(features) + " features from " + std::to_string(first));
        }
}

TEST_F(DropoutOnGpu, ReadsStridedRows) {
  const Dropout options{.p = 0.1, .key = 5, .rows = some_rows(129)};
  for (const int64_t first : {8, 3}) {
    const at::Tensor x = gpu_random_inside(129, 896, first, 16, 1, at::kBFloat16);
    expect_equal(dropout(x, options).cpu(), dropout(x.cpu(), options));
  }
  const at::Tensor turned = gpu_random({896, 129}, 1).t();
  expect_equal(dropout(turned, options).cpu(), dropout(turned.cpu(), options));
}

TEST_F(DropoutOnGpu, NoRowsGiveNoRows) {
  EXPECT_EQ(dropout(gpu_random({0, 64}, 1), {.p = 0.1, .key = 5, .rows = some_rows(0)}).size(0), 0);
}

TEST_F(DropoutOnGpu, ProjectionsHaveTheGradientsOfTheCpu) {
  const Dropout options{.p = 0.25, .key = 11, .rows = some_rows(130)};
  const at::Tensor x = random_leaf({130, 72}, 1), weight = random_leaf({8, 72}, 2),
                   dy = random_tensor({130, 8}, 3);
  torch::autograd::backward({dropout_linear(x, weight, options)}, {dy});
  const at::Tensor gpu_x = x.detach().cuda().set_requires_grad(true),
                   gpu_weight = weight.detach().cuda().set_requires_grad(true);
  const at::Tensor y = dropout_linear(gpu_x, gpu_weight, options);
  torch::autograd::backward({y}, {dy.cuda()});
  expect_close(y.cpu(), dropout_linear(x, weight, options), {.absolute = 1e-5, .relative = 1e-5});
  expect_close(gpu_x.grad().cpu(), x.grad(), {.absolute = 1e-5, .relative = 1e-5});
  expect_close(gpu_weight.grad().cpu(), weight.grad(), {.absolute = 1e-4, .relative = 1e-5});
}

}  // namespace
}  // namespace apus::ops
