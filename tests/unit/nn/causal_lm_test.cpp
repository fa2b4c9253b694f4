#include "apus/nn/causal_lm.h"

#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "apus/nn/embedding.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

// y = x * factor + cos: shows order and that prepare ran.
struct Scale final : Block {
  explicit Scale(double by) : factor(by) {}
  at::Tensor forward(const at::Tensor& hidden, const PassContext& context) override {
    return hidden * factor + context.cos_TH;
  }
  double factor;
};

// Two blocks, a final norm that negates, a tied head.
struct Tiny final : CausalLm {
  Tiny() {
    register_module("embed", table);
    table.named_parameters()[0].tensor.set_data(random_tensor({5, 3}, 1));
  }
  void prepare(PassContext& context) override {
    context.cos_TH = random_tensor({context.rows->rows(), 3}, 2);
  }
  at::Tensor embed(const at::Tensor& tokens, const PassContext& context) override {
    return table.forward(tokens, context);
  }
  std::vector<Block*> blocks() override { return {&first, &second}; }
  at::Tensor final_norm(const at::Tensor& hidden, const PassContext&) override { return -hidden; }
  at::Tensor head_weight(const PassContext&) const override { return table.weight(); }
  std::vector<NamedParameter> embed_parameters() override { return table.named_parameters("embed"); }
  std::vector<NamedParameter> block_parameters(int64_t) override { return {}; }
  std::vector<NamedParameter> head_parameters() override { return embed_parameters(); }
  ShardPlan shard_plan() const override { return {}; }
  int64_t hidden_size() const override { return 3; }
  int64_t vocab_size() const override { return 5; }

  Embedding table{{.vocab_size = 5, .hidden_size = 3}};
  Scale first{2.0}, second{10.0};
};

TEST(CausalLm, LogitsRunAllPartsInOrder) {
  Tiny model;
  PassContext context;
  context.rows = RowLayout::packed({2, 1});
  const at::Tensor tokens = at::tensor({4, 0, 2}, at::kLong);
  const at::Tensor cos = random_tensor({3, 3}, 2);
  const at::Tensor hidden = -((model.table.forward(tokens, {}) * 2 + cos) * 10 + cos);
  expect_close(model.logits(tokens, context), hidden.mm(model.head_weight({}).t()), {.absolute = 1e-5});
  EXPECT_FALSE(context.cos_TH.defined()) << "the caller's context stays as it was";
}

TEST(CausalLm, ABlockThatKnowsNoBetterMakesAllRowsAndSelects) {
  Scale block(2.0);
  PassContext context;
  context.cos_TH = random_tensor({3, 3}, 2);
  const at::Tensor hidden = random_tensor({3, 3}, 4), rows = at::tensor({0, 2, 2}, at::kLong);
  expect_equal(block.forward_read(hidden, {.rows_M = rows}, context),
               block.forward(hidden, context).index_select(0, rows));
}

TEST(CausalLm, LogitsRefuseTokensThatTheLayoutDoesNotHave) {
  Tiny model;
  PassContext context;
  EXPECT_THROW(model.logits(at::tensor({4, 0}, at::kLong), context), ShapeError);
  context.rows = RowLayout::packed({3});
  EXPECT_THROW(model.logits(at::tensor({4, 0}, at::kLong), context), ShapeError);
}

}  // namespace
}  // namespace apus::nn
