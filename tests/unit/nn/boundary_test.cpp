#include "apus/nn/boundary.h"

#include "apus/nn/embedding.h"
#include "apus/nn/linear.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

// Stands for a collective: linear in the input, different on both sides.
struct Scaling final : Boundary {
  at::Tensor enter(const at::Tensor& input) const override { return input * 3; }
  at::Tensor leave(const at::Tensor& output) const override { return output * 5; }
};

struct AddOne final : Boundary {
  at::Tensor enter(const at::Tensor& tokens) const override { return tokens + 1; }
  at::Tensor leave(const at::Tensor& rows) const override { return rows * 2; }
};

TEST(Boundary, IsTheIdentityByDefault) {
  const Boundary boundary;
  const at::Tensor x = random_tensor({2, 3}, 1);
  EXPECT_TRUE(boundary.enter(x).is_same(x));
  EXPECT_TRUE(boundary.leave(x).is_same(x));
}

TEST(Boundary, LinearCallsBothSidesAndAddsItsBiasOnce) {
  Linear linear({.in_features = 3, .out_features = 2, .bias = true});
  LoraAdapter& adapter = linear.add_adapter("a", {.rank = 1, .alpha = 1}, at::kFloat);
  uint64_t seed = 7;
  for (const NamedParameter& parameter : linear.named_parameters())
    parameter.tensor.set_data(random_tensor(parameter.tensor.sizes(), seed++));
  PassContext context;
  context.adapters = {"a"};
  const at::Tensor x = random_tensor({4, 3}, 1);
  const at::Tensor product = x.mm(linear.weight().t()) + x.mm(adapter.a_RI.t()).mm(adapter.b_OR.t());
  linear.set_boundary(std::make_shared<Scaling>());
  expect_close(linear.forward(x, context), product * 15 + linear.bias(),
               {.absolute = 1e-4, .relative = 1e-5});
  linear.set_boundary(nullptr);
  expect_close(linear.forward(x, context), product + linear.bias(), {.absolute = 1e-5, .relative = 1e-5});
}

TEST(Boundary, GradientsFlowThroughBothSides) {
  Linear linear({.in_features = 3, .out_features = 2});
  linear.named_parameters()[0].tensor.set_data(random_tensor({2, 3}, 7));
  linear.set_boundary(std::make_shared<Scaling>());
  check_gradients([&](const auto& in) { return linear.forward(in[0], {}); }, {random_tensor({4, 3}, 1)},
                  5e-3);
}

TEST(Boundary, EmbeddingCallsBothSides) {
  Embedding embedding({.vocab_size = 4, .hidden_size = 2});
  embedding.named_parameters()[0].tensor.set_data(random_tensor({4, 2}, 7));
  embedding.set_boundary(std::make_shared<AddOne>());
  const at::Tensor tokens = at::empty({1}, at::kLong).fill_(2);
  expect_equal(embedding.forward(tokens, {})[0], embedding.weight()[3] * 2);
}

}  // namespace
}  // namespace apus::nn
