#include "apus/ops/attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

struct Operands {
  at::Tensor q, k, v;
};

Operands operands(int64_t rows, int64_t heads, int64_t kv_heads, at::ScalarType dtype = at::kFloat) {
  return {random_tensor({rows, heads, 8}, 1, dtype), random_tensor({rows, kv_heads, 8}, 2, dtype),
          random_tensor({rows, kv_heads, 8}, 3, dtype)};
}

// One query row and head at a time, in double.
at::Tensor plain_attention(const Operands& in, const std::vector<int64_t>& lengths) {
  at::Tensor out = at::zeros(in.q.sizes(), at::kDouble);
  const int64_t group = in.q.size(1) / in.k.size(1);
  int64_t first = 0;
  for (const int64_t length : lengths) {
    for (int64_t t = 0; t < length; ++t)
      for (int64_t n = 0; n < in.q.size(1); ++n) {
        const auto seen = [&](const at::Tensor& x) {
          return x.narrow(0, first, t + 1).select(1, n / group).to(at::kDouble);
        };
        const at::Tensor scores = seen(in.k).mv(in.q[first + t][n].to(at::kDouble)) / std::sqrt(8.0);
        out[first + t][n].copy_(seen(in.v).t().mv(at::softmax(scores, 0)));
      }
    first += length;
  }
  return out;
}

at::Tensor pad(const at::Tensor& packed, const std::vector<int64_t>& lengths, int64_t padded_length) {
  at::Tensor out =
      random_tensor({static_cast<int64_t>(lengths.size()) * padded_length, packed.size(1), 8}, 99);
  int64_t first = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    out.narrow(0, static_cast<int64_t>(i) * padded_length, lengths[i])
        .copy_(packed.narrow(0, first, lengths[i]));
    first += lengths[i];
  }
  return out;
}

class AttentionHeads : public ::testing::TestWithParam<int64_t> {};

TEST_P(AttentionHeads, PackedEqualsThePlainLoop) {
  const std::vector<int64_t> lengths = {3, 0, 1, 5};
  const Operands in = operands(9, 4, GetParam());
  expect_close(attention(in.q, in.k, in.v, {.lengths = lengths}), plain_attention(in, lengths),
               {.absolute = 2e-6});
}

TEST_P(AttentionHeads, PaddedEqualsPackedWhateverThePaddingHolds) {
  const std::vector<int64_t> lengths = {3, 1, 5};
  const Operands in = operands(9, 4, GetParam());
  const at::Tensor packed = attention(in.q, in.k, in.v, {.lengths = lengths});
  const at::Tensor padded = attention(pad(in.q, lengths, 6), pad(in.k, lengths, 6), pad(in.v, lengths, 6),
                                      {.lengths = lengths, .padded_length = 6});
  EXPECT_TRUE(padded.isfinite().all().item<bool>());
  int64_t first = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    expect_close(padded.narrow(0, static_cast<int64_t>(i) * 6, lengths[i]),
                 packed.narrow(0, first, lengths[i]), {.absolute = 2e-6});
    first += lengths[i];
  }
}

TEST_P(AttentionHeads, GradientsAreThoseOfFiniteDifferences) {
  const Operands in = operands(6, 4, GetParam());
  const std::vector<int64_t> packed = {4, 2}, padded = {3, 1};
  check_gradients([&](const auto& x) { return attention(x[0], x[1], x[2], {.lengths = packed}); },
                  {in.q, in.k, in.v});
  check_gradients(
      [&](const auto& x) { return attention(x[0], x[1], x[2], {.lengths = padded, .padded_length = 3}); },
      {in.q, in.k, in.v});
}

INSTANTIATE_TEST_SUITE_P(KeyValueHeads, AttentionHeads, ::testing::Values(1, 2, 4));

TEST(Attention, Bf16StaysCloseToThePlainLoop) {
  const std::vector<int64_t> lengths = {7, 2};
  const Operands in = operands(9, 4, 2, at::kBFloat16);
  const at::Tensor y = attention(in.q, in.k, in.v, {.lengths = lengths});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  expect_close(y, plain_attention(in, lengths), {.absolute = 3e-2});
}

TEST(Attention, ASingleSequenceIsContiguous) {
  const std::vector<int64_t> lengths = {5};
  const Operands in = operands(5, 4, 2);
  EXPECT_TRUE(attention(in.q, in.k, in.v, {.lengths = lengths}).is_contiguous());
}

TEST(Attention, NoRowsGiveZeroGradients) {
  const Operands in = operands(0, 4, 2);
  for (const at::Tensor& x : {in.q, in.k, in.v}) x.set_requires_grad(true);
  const at::Tensor y = attention(in.q, in.k, in.v, {});
  EXPECT_EQ(y.sizes(), in.q.sizes());
  y.sum().backward();
  for (const at::Tensor& x : {in.q, in.k, in.v}) EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(Attention, RefusesRowsThatTheLayoutDoesNotHave) {
  const Operands in = operands(9, 4, 2);
  const std::vector<int64_t> short_by_one = {3, 5};
  EXPECT_THROW(attention(in.q, in.k, in.v, {.lengths = short_by_one}), ShapeError);
  EXPECT_THROW(attention(in.q, in.k, in.v, {.lengths = short_by_one, .padded_length = 5}), ShapeError);
}

TEST(Attention, RefusesHeadsThatDoNotDivide) {
  const Operands in = operands(4, 4, 3);
  const std::vector<int64_t> lengths = {4};
  EXPECT_THROW(attention(in.q, in.k, in.v, {.lengths = lengths}), ShapeError);
}

}  // namespace
}  // namespace apus::ops
