#include "apus/ops/dropout.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/philox.h"
#include "ops/dropout_kernel.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

/// Rows of some coordinates, no two alike.
std::shared_ptr<const SampleRows> some_rows(int64_t count, uint32_t first = 0) {
  auto rows = std::make_shared<SampleRows>();
  rows->epoch = 3;
  for (uint32_t i = first; i < first + static_cast<uint32_t>(count); ++i) {
    rows->ordinals.push_back(1000 + i / 4);
    rows->sides.push_back(static_cast<uint8_t>(i / 2 % 2));
    rows->positions.push_back(i % 2 * 17);
  }
  return rows;
}

/// The definition, element by element.
at::Tensor slow_factors(const Dropout& options, int64_t features) {
  const SampleRows& rows = *options.rows;
  const at::Tensor factors = at::empty({static_cast<int64_t>(rows.ordinals.size()), features}, at::kFloat);
  auto out = factors.accessor<float, 2>();
  for (int64_t t = 0; t < factors.size(0); ++t) {
    const auto i = static_cast<size_t>(t);
    const SampleCoordinate at{rows.epoch, rows.ordinals[i], rows.sides[i], rows.positions[i]};
    for (int64_t f = 0; f < features; ++f) {
      const auto feature = static_cast<uint32_t>(options.first_feature + f);
      const PhiloxBlock block =
          philox4x32({{feature / 8, at.position, at.ordinal, at.epoch << 1 | at.side}}, options.key);
      const uint32_t bits = block.w[feature % 8 / 2] >> (feature % 2 * 16) & 0xffffu;
      const bool keep = bits / 65536.0 >= options.p;
      out[t][f] = keep ? static_cast<float>(1.0 / (1.0 - options.p)) : 0.0f;
    }
  }
  return factors;
}

TEST(Dropout, IsPhiloxAtEachRowsCoordinateWhateverTheWidth) {
  for (const int64_t features : {1, 3, 4, 63, 64, 65, 200, 1024, 1100}) {
    for (const int64_t first : {0, 2, 64, 4095}) {
      const Dropout options{
          .p = 0.3, .key = 0x123456789abcdefULL, .first_feature = first, .rows = some_rows(5)};
      const at::Tensor x = random_tensor({5, features}, 2);
      expect_equal(dropout(x, options), x * slow_factors(options, features));
    }
  }
}

TEST(Dropout, KeepsTheShareThatItShould) {
  for (const double p : {0.05, 0.5, 0.9}) {
    const at::Tensor y = dropout(at::ones({64, 1000}), {.p = p, .key = 7, .rows = some_rows(64)});
    EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), p, 0.006) << p;
    EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.05) << p;
  }
  const at::Tensor x = random_tensor({4, 10}, 1);
  expect_equal(dropout(x, {.p = 0, .key = 7, .rows = some_rows(4)}), x);
}

TEST(Dropout, ARowsMaskDependsOnItsCoordinateAlone) {
  const at::Tensor x = random_tensor({8, 100}, 1);
  const at::Tensor all = dropout(x, {.p = 0.4, .key = 5, .rows = some_rows(8)});
  const at::Tensor tail = dropout(x.narrow(0, 3, 5), {.p = 0.4, .key = 5, .rows = some_rows(5, 3)});
  expect_equal(tail, all.narrow(0, 3, 5));
  const at::Tensor columns =
      dropout(x.narrow(1, 30, 70), {.p = 0.4, .key = 5, .first_feature = 30, .rows = some_rows(8)});
  expect_equal(columns, all.narrow(1, 30, 70));
}

TEST(Dropout, KeysEpochsOrdinalsSidesAndPositionsHaveMasksOfTheirOwn) {
  const at::Tensor x = at::ones({1, 256});
  const auto mask = [&](uint64_t key, uint32_t epoch, uint32_t ordinal, uint8_t side, uint32_t position) {
    const auto rows = std::make_shared<SampleRows>(SampleRows{epoch, {ordinal}, {side}, {position}});
    return dropout(x, {.p = 0.5, .key = key, .rows = rows});
  };
  const std::vector<at::Tensor> masks = {mask(1, 0, 0, 0, 0), mask(2, 0, 0, 0, 0), mask(1, 1, 0, 0, 0),
                                         mask(1, 0, 1, 0, 0), mask(1, 0, 0, 1, 0), mask(1, 0, 0, 0, 1)};
  for (size_t i = 0; i < masks.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_NEAR(masks[i].eq(masks[j]).to(at::kDouble).mean().item<double>(), 0.5, 0.15) << i << ", " << j;
}

TEST(Dropout, RoundsLowerDtypesOnce) {
  const Dropout options{.p = 0.1, .key = 9, .rows = some_rows(6)};
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = random_tensor({6, 90}, 4, dtype);
    expect_equal(dropout(x, options), (x.to(at::kFloat) * slow_factors(options, 90)).to(dtype));
  }
}

TEST(DeviceCopy, IsMadeOnceADeviceAndNotCopied) {
  int made = 0;
  const auto make = [&] {
    ++made;
    return at::ones({2});
  };
  const DeviceCopy copy;
  EXPECT_TRUE(copy.get(at::kCPU, make).is_same(copy.get(at::kCPU, make)));
  EXPECT_EQ(made, 1);
  const DeviceCopy other(copy);
  other.get(at::kCPU, make);
  EXPECT_EQ(made, 2);
  copy.get(at::kMeta, [&] { return at::ones({2}, at::TensorOptions().device(at::kMeta)); });
  copy.get(at::kCPU, make);
  EXPECT_EQ(made, 3);
}

TEST(DropoutKernel, TheThresholdIsTheFirstNumberThatIsKept) {
  for (const double p : {0.0, 0.05, 0.1, 0.5, 1.0 / 3.0, 0.999}) {
    const uint32_t threshold = detail::dropout_threshold(p);
    EXPECT_GE(threshold / 65536.0, p) << p;
    if (threshold > 0) {
      EXPECT_LT((threshold - 1) / 65536.0, p) << p;
    }
  }
}

TEST(DropoutLinear, IsTheProjectionOfDroppedRows) {
  const Dropout options{.p = 0.25, .key = 11, .rows = some_rows(7)};
  const at::Tensor x = random_tensor({7, 40}, 1), weight = random_tensor({3, 40}, 2);
  expect_equal(dropout_linear(x, weight, options), dropout(x, options).mm(weight.t()));
}

TEST(DropoutLinear, GradientsAreThoseOfTheSameMask) {
  const Dropout options{.p = 0.25, .key = 11, .rows = some_rows(7)};
  const at::Tensor x = random_leaf({7, 12}, 1), weight = random_leaf({3, 12}, 2),
                   dy = random_tensor({7, 3}, 3);
  (dropout_linear(x, weight, options) * dy).sum().backward();
  const at::Tensor factors = slow_factors(options, 12);
  const at::Tensor x2 = random_leaf({7, 12}, 1), weight2 = random_leaf({3, 12}, 2);
  ((x2 * factors).mm(weight2.t()) * dy).sum().backward();
  expect_close(x.grad(), x2.grad(), {.absolute = 1e-6, .relative = 1e-6});
  expect_close(weight.grad(), weight2.grad(), {.absolute = 1e-6, .relative = 1e-6});
  check_gradients([&](const auto& in) { return dropout_linear(in[0], in[1], options); },
                  {random_tensor({7, 12}, 5), random_tensor({3, 12}, 6)});
}

TEST(DropoutLinear, ComputesInTheWeightsDtypeAndGivesTheInputItsOwn) {
  const Dropout options{.p = 0.25, .key = 11, .rows = some_rows(7)};
  const at::Tensor x = random_leaf({7, 12}, 1, at::kBFloat16), weight = random_leaf({3, 12}, 2);
  const at::Tensor y = dropout_linear(x, weight, options);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  expect_equal(y.detach(), dropout(x.detach().to(at::kFloat), options).mm(weight.detach().t()));
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
}

TEST(DropoutLinear, LeavesAloneWhatNeedsNoGradient) {
  const Dropout options{.p = 0.25, .key = 11, .rows = some_rows(7)};
  const at::Tensor x = random_tensor({7, 12}, 1), weight = random_leaf({3, 12}, 2);
  dropout_linear(x, weight, options).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  const at::Tensor x2 = random_leaf({7, 12}, 1), frozen = random_tensor({3, 12}, 2);
  dropout_linear(x2, frozen, options).sum().backward();
  EXPECT_TRUE(x2.grad().defined());
}

TEST(Dropout, RefusesWhatDoesNotFit) {
  const at::Tensor x = random_tensor({4, 6}, 1);
  EXPECT_THROW(dropout(x, {.p = 0.5, .key = 1, .rows = some_rows(5)}), ShapeError);
  EXPECT_THROW(dropout(x, {.p = 0.5, .key = 1, .rows = nullptr}), ShapeError);
  EXPECT_THROW(dropout(x, {.p = 1.0, .key = 1, .rows = some_rows(4)}), ConfigError);
  EXPECT_THROW(dropout(x, {.p = -0.1, .key = 1, .rows = some_rows(4)}), ConfigError);
  EXPECT_THROW(dropout(x.flatten(), {.p = 0.5, .key = 1, .rows = some_rows(24)}), ShapeError);
  EXPECT_THROW(dropout_linear(x, random_tensor({2, 5}, 2), {.p = 0.5, .key = 1, .rows = some_rows(4)}),
               ShapeError);
}

}  // namespace
}  // namespace apus::ops
