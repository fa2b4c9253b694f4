#include "ops/gemm.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>

#include <array>
#include <limits>
#include <string>

#include "apus/base/error.h"
#include "apus/ops/gemm_choices.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class GemmOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

/// A random matrix in rows that are `spare` elements apart.
at::Tensor matrix(int64_t rows, int64_t columns, int64_t spare, uint64_t seed, at::ScalarType dtype) {
  const at::Tensor wide = at::full({rows, columns + spare}, kNaN, at::TensorOptions(at::kCUDA).dtype(dtype));
  at::Generator generator = at::cuda::detail::createCUDAGenerator();
  generator.set_current_seed(seed);
  wide.narrow(1, 0, columns).copy_(at::randn({rows, columns}, generator, at::TensorOptions(at::kCUDA)));
  return wide.narrow(1, 0, columns);
}

struct Shape {
  int64_t m, n, k;
};

struct Dtypes {
  at::ScalarType in, out;
};

at::Tensor exact(const Gemm& g, const at::Tensor& c_before) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
  const at::Tensor a = g.form == GemmForm::kTn ? wide(g.a).t() : wide(g.a);
  const at::Tensor b = g.form == GemmForm::kNt ? wide(g.b).t() : wide(g.b);
  at::Tensor result = at::mm(a, b) * g.alpha;
  if (g.beta != 0.0) result = result + wide(c_before) * g.beta;
  return g.bias_N.defined() ? result + wide(g.bias_N) : result;
}

int64_t inner_dim(const Gemm& g) {
  return g.form == GemmForm::kTn ? 0 : 1;
}

/// A tensor core adds 16 products to an fp32 sum at a time and cuts off what does not fit, always towards
/// zero: up to a unit in the last place each time, where fp32 arithmetic rounds by half of one either way.
/// Parts of a sum rounded to bf16 would err by 1e-3.
double truncation(int64_t terms) {
  return static_cast<double>(terms) / 16 * std::numeric_limits<float>::epsilon();
}

/// Computes it by gemm and by the twin from the same D, and compares both with the exact result.
void compare(Gemm g, const std::string& what) {
  const at::Tensor before = g.d.clone();
  const at::Tensor wanted = exact(g, g.c.defined() ? g.c : before);
  gemm(g);
  const at::Tensor found = g.d.clone();
  g.d.copy_(before);
  gemm_twin(g);
  const double scale = wanted.numel() == 0 ? 0.0 : wanted.square().mean().sqrt().item<double>();
  const double bound =
      g.a.scalar_type() == at::kFloat
          ? 1e-5 * scale
          : 1.5 * rms_difference(g.d, wanted) + (1e-6 + truncation(g.a.size(inner_dim(g)))) * scale;
  EXPECT_LE(rms_difference(found, wanted), bound + 1e-12) << what;
}

TEST_F(GemmOnGpu, IsTheProductInEveryFormShapeAndDtype) {
  uint64_t seed = 0;
  for (const Dtypes& dtypes :
       {Dtypes{at::kBFloat16, at::kBFloat16}, {at::kBFloat16, at::kFloat}, {at::kFloat, at::kFloat}}) {
    for (const Shape& s : {Shape{1, 64, 128},
                           {127, 192, 264},
                           {129, 72, 1},
                           {5, 3, 7},
                           {256, 513, 40},
                           {8, 4608, 3584},
                           {64, 3584, 512}}) {
      for (const GemmForm form : {GemmForm::kNt, GemmForm::kNn, GemmForm::kTn}) {
        for (const int64_t spare : {0, 8, 3}) {
          const bool a_turned = form == GemmForm::kTn, b_turned = form == GemmForm::kNt;
          seed += 10;
          Gemm g{.form = form,
                 .a = matrix(a_turned ? s.k : s.m, a_turned ? s.m : s.k, spare, seed, dtypes.in),
                 .b = matrix(b_turned ? s.n : s.k, b_turned ? s.k : s.n, spare, seed + 1, dtypes.in),
                 .d = matrix(s.m, s.n, spare, seed + 2, dtypes.out)};
          const std::string what =
              apus::detail::concat("form ", static_cast<int>(form), ", ", s.m, "x", s.n, "x", s.k, ", spare ",
                                   spare, ", ", dtypes.in, " to ", dtypes.out);
          const at::Tensor kept = g.d.clone();
          g.d.fill_(kNaN);
          gemm(g);
          EXPECT_FALSE(g.d.isnan().any().item<bool>()) << what << ": not all written";
          g.d.copy_(kept);
          compare(g, what);
          g.alpha = 0.5;
          g.beta = 1.0;
          compare(g, what + ", added");
          g.c = matrix(s.m, s.n, spare, seed + 3, dtypes.out);
          g.bias_N = random_tensor({s.n}, seed + 4, dtypes.out).to(at::kCUDA);
          compare(g, what + ", with a residual and a bias");
          g.beta = 0.0;
          g.c.fill_(kNaN);
          compare(g, what + ", with a bias");
        }
      }
    }
  }
}

TEST_F(GemmOnGpu, KeepsWhatLiesBesideTheRows) {
  const at::Tensor wide = at::full({33, 40}, 7.0, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  gemm({.a = matrix(33, 64, 0, 1, at::kBFloat16),
        .b = matrix(24, 64, 0, 2, at::kBFloat16),
        .d = wide.narrow(1, 8, 24)});
  EXPECT_EQ(largest(wide.narrow(1, 0, 8) - 7.0), 0.0);
  EXPECT_EQ(largest(wide.narrow(1, 32, 8) - 7.0), 0.0);
}

TEST_F(GemmOnGpu, GivesTheSameBitsAgain) {
  const at::Tensor a = matrix(4096, 64, 8, 1, at::kBFloat16), b = matrix(4096, 512, 0, 2, at::kBFloat16);
  const auto product = [&] {
    const at::Tensor d = at::zeros({64, 512}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
    gemm({.form = GemmForm::kTn, .a = a, .b = b, .d = d});
    return d;
  };
  expect_equal(product(), product());
}

TEST_F(GemmOnGpu, TheTimedChoiceIsRightToo) {
  Gemm g{.a = matrix(512, 256, 0, 1, at::kBFloat16),
         .b = matrix(384, 256, 0, 2, at::kBFloat16),
         .d = matrix(512, 384, 0, 3, at::kBFloat16),
         .choice = GemmChoice::kTimed};
  compare(g, "timed");
  g.beta = 1.0;
  compare(g, "timed, in place");
  g.a = matrix(256, 256, 0, 4, at::kBFloat16);
  g.d = matrix(256, 384, 0, 5, at::kBFloat16);
  compare(g, "timed in place before it was ever begun");
  g.c = matrix(256, 384, 0, 6, at::kBFloat16);
  compare(g, "timed, with a residual");
}

TEST_F(GemmOnGpu, ALargeProductIsTimedAtItsThirdUseAndStaysRight) {
  Gemm g{.a = matrix(2048, 1024, 8, 1, at::kBFloat16),
         .b = matrix(1024, 1024, 8, 2, at::kBFloat16),
         .d = matrix(2048, 1024, 8, 3, at::kBFloat16)};
  const ScratchFolder folder;
  const auto known = [&] {
    save_gemm_choices(folder.path(), g.d.device());
    return load_gemm_choices(folder.path(), g.d.device());
  };
  const int64_t before = known();
  for (int use = 1; use <= 4; ++use) {
    compare(g, apus::detail::concat("use ", use));
    EXPECT_EQ(known() - before, use >= 3 ? 1 : 0) << use;
  }
  g.beta = 1.0;
  for (int use = 1; use <= 4; ++use) compare(g, apus::detail::concat("in place, use ", use));
  EXPECT_EQ(known() - before, 1) << "a sum in place is the same product";
}

TEST_F(GemmOnGpu, DeterministicProductsAreNotTimed) {
  const bool was = at::globalContext().deterministicAlgorithms();
  at::globalContext().setDeterministicAlgorithms(true, false);
  const at::Tensor a = matrix(2048, 1536, 0, 1, at::kBFloat16), b = matrix(1024, 1536, 0, 2, at::kBFloat16);
  const auto product = [&] {
    const at::Tensor d = at::zeros({2048, 1024}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
    gemm({.a = a, .b = b, .d = d, .choice = GemmChoice::kTimed});
    return d;
  };
  const at::Tensor first = product();
  for (int use = 2; use <= 5; ++use) expect_equal(product(), first);
  at::globalContext().setDeterministicAlgorithms(was, false);
}

TEST_F(GemmOnGpu, AnEmptyResultOrSumIsRight) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor d = at::full({4, 3}, 5.0, options);
  gemm({.a = at::zeros({4, 0}, options), .b = at::zeros({3, 0}, options), .d = d});
  EXPECT_EQ(largest(d), 0.0);
  gemm({.a = at::zeros({0, 8}, options), .b = at::zeros({3, 8}, options), .d = at::zeros({0, 3}, options)});
}

}  // namespace
}  // namespace apus::ops
