// Dropout of adapters inside nn::Linear.
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "apus/base/philox.h"
#include "apus/nn/dropout_rows.h"
#include "apus/nn/linear.h"
#include "apus/ops/dropout.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

constexpr LoraOptions kLora{.rank = 2, .alpha = 4, .dropout = 0.5, .path = "model.q_proj"};

PassContext pass_with_dropout(std::vector<int64_t> lengths, std::vector<int64_t> places) {
  PassContext context{.rows = RowLayout::packed(std::move(lengths)), .adapters = {"a"}};
  context.dropout = dropout_rows(*context.rows, {.seed = 3, .epoch = 1, .places = std::move(places)});
  return context;
}

/// A projection with adapter "a"; equal for equal paths.
std::unique_ptr<Linear> adapted(const LoraOptions& options) {
  auto linear = std::make_unique<Linear>(LinearOptions{.in_features = 40, .out_features = 6});
  linear->add_adapter("a", options, at::kFloat);
  uint64_t seed = 40;
  for (const NamedParameter& parameter : linear->named_parameters())
    parameter.tensor.set_data(random_tensor(parameter.tensor.sizes(), seed++));
  return linear;
}

TEST(LinearDropout, DropsOnTheWayIntoAWithAKeyOfThePath) {
  const auto linear = adapted(kLora);
  const PassContext context = pass_with_dropout({3, 2}, {8, 9});
  const at::Tensor x = random_tensor({5, 40}, 1);
  const LoraAdapter& adapter = *linear->find_adapter("a");
  EXPECT_EQ(adapter.dropout_path, "model.q_proj.lora_dropout.a");
  const at::Tensor dropped = ops::dropout(
      x, {.p = 0.5, .key = philox_key(3, "model.q_proj.lora_dropout.a"), .rows = context.dropout->rows});
  const at::Tensor wanted =
      at::linear(x, linear->weight()) + dropped.mm(adapter.a_RI.t()).mm(adapter.b_OR.t()) * 2;
  expect_close(linear->forward(x, context), wanted, {.absolute = 1e-5, .relative = 1e-5});
}

TEST(LinearDropout, IsOffWithoutRowsWithoutShareAndWithoutTheAdapter) {
  const auto linear = adapted(kLora);
  PassContext context = pass_with_dropout({5}, {8}), quiet = context;
  quiet.dropout = nullptr;
  const at::Tensor x = random_tensor({5, 40}, 1);
  const at::Tensor whole = linear->forward(x, quiet);
  EXPECT_FALSE(linear->forward(x, context).equal(whole));
  EXPECT_TRUE(adapted({.rank = 2, .alpha = 4})->forward(x, context).equal(whole));
  context.adapters = {};
  EXPECT_TRUE(linear->forward(x, context).equal(at::linear(x, linear->weight())));
}

TEST(LinearDropout, TargetsHaveMasksOfTheirOwn) {
  LoraOptions other = kLora;
  other.path = "model.k_proj";
  const PassContext context = pass_with_dropout({5}, {8});
  const at::Tensor x = random_tensor({5, 40}, 1);
  EXPECT_FALSE(adapted(kLora)->forward(x, context).equal(adapted(other)->forward(x, context)));
  EXPECT_TRUE(adapted(kLora)->forward(x, context).equal(adapted(kLora)->forward(x, context)));
}

TEST(LinearDropout, ARowIsDroppedAlikeInAnyMicroBatch) {
  const auto linear = adapted(kLora);
  const at::Tensor x = random_tensor({5, 40}, 1);
  const at::Tensor both = linear->forward(x, pass_with_dropout({3, 2}, {8, 9}));
  const at::Tensor second = linear->forward(x.narrow(0, 3, 2), pass_with_dropout({2}, {9}));
  expect_close(second, both.narrow(0, 3, 2), {.absolute = 1e-6, .relative = 1e-6});
}

TEST(LinearDropout, SomeRowsOfAPassMeetTheirMasks) {
  const auto linear = adapted(kLora);
  const at::Tensor x = random_tensor({5, 40}, 1), rows = at::tensor({0, 2, 2, 4}, at::kLong);
  const PassContext all = pass_with_dropout({3, 2}, {8, 9});
  PassContext some = all;
  some.dropout = dropout_at(*all.dropout, rows);
  const at::Tensor wanted = linear->forward(x, all).index_select(0, rows);
  expect_close(linear->forward(x.index_select(0, rows), some), wanted, {.absolute = 1e-6, .relative = 1e-6});
}

TEST(LinearDropout, RefusesSharesAndMissingPaths) {
  Linear linear({.in_features = 4, .out_features = 4});
  EXPECT_THROW(linear.add_adapter("a", {.rank = 2, .dropout = 1.0, .path = "x"}, at::kFloat), ConfigError);
  EXPECT_THROW(linear.add_adapter("a", {.rank = 2, .dropout = -0.5, .path = "x"}, at::kFloat), ConfigError);
  EXPECT_THROW(linear.add_adapter("a", {.rank = 2, .dropout = 0.5}, at::kFloat), ConfigError);
}

}  // namespace
}  // namespace apus::nn
