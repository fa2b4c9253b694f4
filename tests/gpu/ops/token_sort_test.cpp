#include "ops/kernels/token_sort.h"

#include <ATen/ops/full.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <c10/cuda/CUDAStream.h>

#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class TokenSortOnGpu : public GpuTest {};

at::Tensor random_tokens(int64_t count, int64_t low, int64_t high) {
  at::Generator generator = at::cuda::detail::createCUDAGenerator();
  generator.set_current_seed(7);
  return at::randint(low, high, {count}, generator, at::TensorOptions(at::kLong).device(at::kCUDA));
}

/// Sorts and, if there is a gradient, clears; compares with a stable sort.
void expect_sorted(const at::Tensor& tokens, int64_t vocab, const at::Tensor& grad) {
  const at::Tensor sorted = at::full({tokens.size(0)}, -7, tokens.options().dtype(at::kInt));
  const at::Tensor positions = at::full({tokens.size(0)}, -7, tokens.options());
  kernels::sort_tokens({.tokens = tokens.const_data_ptr<int64_t>(),
                        .sorted = sorted.mutable_data_ptr<int32_t>(),
                        .positions = positions.mutable_data_ptr<int64_t>(),
                        .rows = tokens.size(0),
                        .vocab = vocab,
                        .grad = grad.defined() ? grad.mutable_data_ptr() : nullptr,
                        .row_bytes = grad.defined() ? grad.size(1) * grad.element_size() : 0},
                       c10::cuda::getCurrentCUDAStream().stream());
  const at::Tensor keys = at::where(tokens.ge(0).logical_and(tokens.lt(vocab)), tokens, vocab);
  const auto [wanted, order] = at::sort(keys, /*stable=*/true, 0, /*descending=*/false);
  expect_equal(sorted.to(at::kLong), wanted);
  expect_equal(positions, order);
}

TEST_F(TokenSortOnGpu, IsStableAndPutsWhatIsOutsideLast) {
  for (const int64_t count : {1, 2, 31, 1023, 1024, 5000, 16383, 16384})
    for (const int64_t vocab : {1, 3, 1000, 151936})
      expect_sorted(random_tokens(count, -2, vocab + 3), vocab, {});
}

TEST_F(TokenSortOnGpu, ClearsRowsWithoutTokensAlone) {
  for (const int64_t vocab : {1, 5, 131, 132, 20000}) {
    const at::Tensor tokens = random_tokens(300, -1, vocab + 1);
    const at::Tensor grad = at::full({vocab, 40}, 3, tokens.options().dtype(at::kFloat));
    expect_sorted(tokens, vocab, grad);
    const at::Tensor inside = at::masked_select(tokens, tokens.ge(0).logical_and(tokens.lt(vocab)));
    const at::Tensor wanted = at::full({vocab, 40}, 0, grad.options());
    wanted.index_fill_(0, inside, 3);
    expect_equal(grad, wanted);
  }
}

TEST_F(TokenSortOnGpu, SaysWhatItTakes) {
  EXPECT_TRUE(kernels::sorts_tokens(16384, 151936));
  EXPECT_FALSE(kernels::sorts_tokens(16385, 151936));
  EXPECT_FALSE(kernels::sorts_tokens(0, 151936));
  EXPECT_FALSE(kernels::sorts_tokens(1, int64_t{1} << 24));
}

}  // namespace
}  // namespace apus::ops
