#include "apus/nn/embedding.h"

#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

TEST(Embedding, LooksUpItsRowsAndIsNamedWeight) {
  Embedding embedding({.vocab_size = 5, .hidden_size = 3});
  const NamedParameter parameter = embedding.named_parameters("embed_tokens")[0];
  EXPECT_EQ(parameter.name, "embed_tokens.weight");
  EXPECT_FALSE(parameter.tensor.requires_grad());
  parameter.tensor.set_data(random_tensor({5, 3}, 1));
  expect_equal(embedding.forward(at::tensor({4, 1}, at::kLong), {})[0], random_tensor({5, 3}, 1)[4]);
}

TEST(VocabHead, HoldsAWeightAlone) {
  VocabHead head({.vocab_size = 5, .hidden_size = 3, .dtype = at::kBFloat16});
  EXPECT_EQ(head.weight().sizes(), at::IntArrayRef({5, 3}));
  EXPECT_EQ(head.weight().scalar_type(), at::kBFloat16);
  EXPECT_EQ(head.named_parameters("lm_head")[0].name, "lm_head.weight");
}

TEST(Embedding, RefusesSizesThatAreNotPositive) {
  EXPECT_THROW(Embedding({.vocab_size = 0, .hidden_size = 3}), ConfigError);
  EXPECT_THROW(VocabHead({.vocab_size = 5, .hidden_size = -3}), ConfigError);
}

}  // namespace
}  // namespace apus::nn
