#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "apus/memory/grad_sink.h"
#include "apus/memory/param_group.h"
#include "apus/ops/projection.h"
#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class EmbeddingOnGpu : public GpuTest {};

at::Tensor leaf(at::Tensor x) {
  return x.set_requires_grad(true);
}

at::Tensor random_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  at::Generator generator = at::cuda::detail::createCUDAGenerator();
  generator.set_current_seed(seed);
  return at::randint(0, vocab, {count}, generator, at::TensorOptions(at::kLong).device(at::kCUDA));
}

/// Sums of dy's rows by token, in double.
at::Tensor exact_gradient(const at::Tensor& tokens, const at::Tensor& dy, int64_t vocab) {
  const at::Tensor sums = at::zeros({vocab, dy.size(1)}, dy.options().dtype(at::kDouble));
  return sums.index_add_(0, tokens, dy.to(at::kDouble));
}

/// Runs both ways and compares with the definition. bf16: a gradient is rounded once.
void expect_right(const at::Tensor& tokens, int64_t vocab, int64_t columns, at::ScalarType dtype,
                  const std::string& what) {
  const at::Tensor table = leaf(gpu_random({vocab, columns}, 1, dtype));
  const at::Tensor dy = gpu_random({tokens.size(0), columns}, 2, dtype);
  poison_free_memory();
  const at::Tensor rows = embedding(tokens, table);
  expect_equal(rows.detach(), table.detach().index_select(0, tokens), what);
  torch::autograd::backward({rows}, {dy});
  const double bits = dtype == at::kFloat ? 1e-5 : 1.0 / 256;
  expect_close(table.grad(), exact_gradient(tokens, dy, vocab), {.absolute = 1e-4, .relative = bits}, what);
}

TEST_F(EmbeddingOnGpu, AddsTheRowsOfEachToken) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
    for (const int64_t columns : {8, 896, 3584})
      for (const int64_t count : {1, 31, 32, 33, 64, 129, 1000})
        for (const int64_t vocab : {1, 7, 5000})
          expect_right(random_tokens(count, vocab, 3), vocab, columns, dtype,
                       std::to_string(count) + " tokens of " + std::to_string(vocab));
}

TEST_F(EmbeddingOnGpu, RunsOfOneTokenMayEndAnywhere) {
  const auto options = at::TensorOptions(at::kLong).device(at::kCUDA);
  for (const int64_t ones : {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 79, 80, 81, 500})
    for (const int64_t twos : {1, 15, 16, 31, 32, 40, 300}) {
      const at::Tensor tokens = at::full({ones + twos}, 2, options);
      tokens.narrow(0, 0, ones).fill_(1);
      expect_right(tokens.flip(0), 4, 64, at::kBFloat16,
                   std::to_string(ones) + " and " + std::to_string(twos));
    }
}

TEST_F(EmbeddingOnGpu, MoreTokensThanOneBlockSorts) {
  expect_right(random_tokens(20000, 700, 3), 700, 64, at::kBFloat16, "20000 tokens");
}

TEST_F(EmbeddingOnGpu, WidthsWithoutAKernelFallBack) {
  expect_right(random_tokens(33, 7, 3), 7, 30, at::kFloat, "30 columns");
}

TEST_F(EmbeddingOnGpu, NoTokensGiveZeros) {
  expect_right(random_tokens(0, 7, 3), 7, 64, at::kBFloat16, "no tokens");
}

TEST_F(EmbeddingOnGpu, ATokenOutsideTheTableIsNanAndHasNoGradient) {
  const at::Tensor tokens = at::tensor({2, -1, 2, 5, 1 << 30}, at::kLong).to(at::kCUDA);
  const at::Tensor table = leaf(gpu_random({5, 64}, 1));
  const at::Tensor rows = embedding(tokens, table);
  for (const int64_t row : {0, 2}) expect_equal(rows[row].detach(), table[2].detach());
  for (const int64_t row : {1, 3, 4}) EXPECT_TRUE(rows[row].isnan().all().item<bool>()) << row;
  const at::Tensor dy = gpu_random({5, 64}, 2);
  torch::autograd::backward({rows}, {dy});
  const at::Tensor wanted = at::zeros({5, 64}, dy.options());
  wanted[2].copy_((dy[0].to(at::kFloat) + dy[2].to(at::kFloat)).to(at::kBFloat16));
  expect_equal(table.grad(), wanted);
}

TEST_F(EmbeddingOnGpu, AddsIntoTheSinkBesideWhatIsThere) {
  for (const at::ScalarType grad_dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor table = leaf(gpu_random({50, 64}, 1));
    const at::Tensor tokens = random_tokens(300, 50, 3), dy = gpu_random({300, 64}, 2);
    memory::ParamGroup group({{"table", table}}, {.grad_dtype = grad_dtype});
    memory::GradSink sink({&group});
    at::Tensor found;
    sink.set_on_ready([&](memory::ParamGroup& ready) { found = ready.begin_reduce().clone(); });
    sink.expect(table);
    sink.expect(table);
    for (int use = 0; use < 2; ++use) {
      torch::autograd::backward({embedding(tokens, table, &sink)}, {dy});
      EXPECT_FALSE(table.grad().defined());
      sink.add(table, {});
    }
    ASSERT_TRUE(found.defined());
    const at::Tensor wanted = 2 * exact_gradient(tokens, dy, 50);
    expect_close(found.narrow(0, 0, 50 * 64).view({50, 64}), wanted,
                 {.absolute = 1e-4, .relative = grad_dtype == at::kFloat ? 1e-5 : 2.0 / 256});
  }
}

TEST_F(EmbeddingOnGpu, RepeatsAreBitwiseEqual) {
  const at::Tensor tokens = random_tokens(16384, 300, 3), dy = gpu_random({16384, 896}, 2);
  at::Tensor first;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor table = leaf(gpu_random({300, 896}, 1));
    torch::autograd::backward({embedding(tokens, table)}, {dy});
    if (i == 0) first = table.grad();
    expect_equal(table.grad(), first);
  }
}

}  // namespace
}  // namespace apus::ops
