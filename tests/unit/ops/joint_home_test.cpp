#include "apus/ops/joint_home.h"

#include <ATen/ops/cat.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

JointHomeOptions options(JointLayout layout, std::vector<int64_t> outs = {6, 4}) {
  return {.in_features = 5,
          .out_features = std::move(outs),
          .rank = 8,
          .layout = layout,
          .bias = true,
          .dtype = at::kFloat};
}

/// Parts whose weights lie in the home; `ranks` 0 = no adapter.
std::vector<JointPart> parts_in(JointHome& home, const std::vector<int64_t>& ranks) {
  std::vector<JointPart> parts;
  for (size_t i = 0; i < home.parts(); ++i) {
    home.weight(i).copy_(random_tensor(home.weight(i).sizes(), 10 + i));
    home.bias(i).copy_(random_tensor(home.bias(i).sizes(), 20 + i));
    JointPart part{.weight_OD = home.weight(i), .bias_O = home.bias(i)};
    if (ranks[i] > 0) {
      part.a_RD = random_tensor({ranks[i], 5}, 30 + i);
      part.b_OR = random_tensor({home.options().out_features[i], ranks[i]}, 40 + i);
      part.scaling = 0.5 + static_cast<double>(i);
    }
    parts.push_back(part);
  }
  return parts;
}

/// What a part gives on its own.
at::Tensor alone(const at::Tensor& x, const JointPart& part) {
  const at::Tensor y = x.mm(part.weight_OD.t());
  return part.has_adapter() ? y + x.mm(part.a_RD.t()).mm(part.b_OR.t()) * part.scaling : y;
}

TEST(JointHome, OneProductIsAllPartsWithTheirAdapters) {
  JointHome home(options(JointLayout::kFused, {6, 4, 4}));
  const std::vector<JointPart> parts = parts_in(home, {8, 0, 8});
  home.load(parts);
  const at::Tensor x = random_tensor({7, 5}, 1);
  const at::Tensor both = at::cat({x, x.mm(home.a().t())}, 1);
  ASSERT_EQ(both.size(1), home.input_room().width(5));
  const at::Tensor wanted = at::cat({alone(x, parts[0]), alone(x, parts[1]), alone(x, parts[2])}, 1);
  expect_close(both.mm(home.weights_with_b().t()), wanted, {.absolute = 1e-4});
}

TEST(JointHome, BesideEachPartReadsItsOwnColumns) {
  JointHome home(options(JointLayout::kBeside));
  const std::vector<JointPart> parts = parts_in(home, {8, 8});
  home.load(parts);
  const at::Tensor x = random_tensor({7, 5}, 1), a = home.a();
  const at::Tensor roomy = at::cat({x.mm(a.narrow(0, 0, 8).t()), x, x.mm(a.narrow(0, 8, 8).t())}, 1);
  ASSERT_EQ(roomy.size(1), home.input_room().width(5));
  EXPECT_EQ(home.inner_column(0), 0);
  EXPECT_EQ(home.inner_column(1), 13);
  expect_close(roomy.narrow(1, 0, 13).mm(home.weight_with_b(0).t()), alone(x, parts[0]), {.absolute = 1e-4});
  expect_close(roomy.narrow(1, 8, 13).mm(home.weight_with_b(1).t()), alone(x, parts[1]), {.absolute = 1e-4});
}

TEST(JointHome, TheInputsGradientIsOneProduct) {
  for (const JointLayout layout : {JointLayout::kFused, JointLayout::kBeside}) {
    JointHome home(options(layout));
    const std::vector<JointPart> parts = parts_in(home, {8, 8});
    home.load(parts);
    const at::Tensor dy = random_tensor({3, 10}, 1);
    const at::Tensor u =
        at::cat({dy.narrow(1, 0, 6).mm(home.scaled_b(0)), dy.narrow(1, 6, 4).mm(home.scaled_b(1))}, 1);
    at::Tensor wanted;
    for (size_t i = 0; i < 2; ++i) {
      const at::Tensor dy_part = dy.narrow(1, home.first(i), home.options().out_features[i]);
      const at::Tensor whole = parts[i].weight_OD + parts[i].b_OR.mm(parts[i].a_RD) * parts[i].scaling;
      wanted = wanted.defined() ? wanted + dy_part.mm(whole) : dy_part.mm(whole);
    }
    ASSERT_EQ(home.grad_room(), (RowRoom{0, 16}));
    expect_close(at::cat({dy, u}, 1).mm(home.weights_and_a()), wanted, {.absolute = 1e-4});
    if (layout == JointLayout::kFused) expect_close(dy.mm(home.scaled_b()), u, {.absolute = 1e-4});
  }
}

TEST(JointHome, AnotherAdapterLeavesNothingOfTheLast) {
  JointHome home(options(JointLayout::kFused));
  const std::vector<JointPart> wide = parts_in(home, {8, 8}), base = parts_in(home, {0, 0});
  home.load(wide);
  EXPECT_TRUE(home.is_loaded(wide));
  home.load(base);
  EXPECT_FALSE(home.is_loaded(wide));
  EXPECT_EQ(largest(home.a()), 0.0);
  EXPECT_EQ(largest(home.scaled_b()), 0.0);
  expect_equal(home.weight(0), base[0].weight_OD);
}

TEST(JointHome, SaysWhatFits) {
  JointHome home(options(JointLayout::kFused));
  std::vector<JointPart> parts = parts_in(home, {8, 8});
  EXPECT_TRUE(home.fits(parts));
  EXPECT_TRUE(home.holds(parts[0].weight_OD));
  EXPECT_TRUE(home.holds(parts[1].bias_O));
  EXPECT_FALSE(home.holds(parts[0].a_RD));
  EXPECT_FALSE(home.holds({}));
  parts[1].a_RD = parts[1].a_RD.to(at::kBFloat16);
  EXPECT_FALSE(home.fits(parts));
  EXPECT_FALSE(home.fits(parts_in(home, {16, 8})));
  EXPECT_FALSE(home.fits(parts_in(home, {4, 8})));
}

TEST(JointHome, RefusesOtherShapes) {
  JointHomeOptions bad = options(JointLayout::kFused);
  bad.rank = 12;
  EXPECT_THROW(JointHome{bad}, ConfigError);
  EXPECT_THROW(JointHome{options(JointLayout::kBeside, {4, 4, 4})}, ConfigError);
  EXPECT_THROW(JointHome{options(JointLayout::kFused, {})}, ConfigError);
  EXPECT_THROW(JointHome{options(JointLayout::kFused, {0})}, ConfigError);
}

}  // namespace
}  // namespace apus::ops
