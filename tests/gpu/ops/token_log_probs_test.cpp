#include "apus/ops/token_log_probs.h"

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>

#include <limits>
#include <string>

#include "apus/base/error.h"
#include "apus/memory/grad_sink.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class TokenLogProbsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

/// Numbers between -1 and 1 without a pattern, made on the device: a vocabulary is large.
at::Tensor noise(at::IntArrayRef sizes, double seed, at::ScalarType dtype) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  const at::Tensor places = at::arange(count, at::TensorOptions(at::kCUDA).dtype(at::kDouble));
  return ((places + seed * 1e3) * 12.9898).sin().mul(43758.5453).frac().view(sizes).to(dtype);
}

struct Case {
  int64_t rows, width, vocab;
  at::ScalarType dtype = at::kBFloat16;
  int64_t chunk = 0;

  std::string text() const {
    return detail::concat(rows, "x", width, " of ", vocab, " ", c10::toString(dtype), " by ", chunk);
  }
};

struct Operands {
  explicit Operands(const Case& c)
      : hidden(noise({c.rows, c.width}, 1, c.dtype)),
        weight(noise({c.vocab, c.width}, 2, c.dtype)),
        targets(at::arange(c.rows, at::TensorOptions(at::kCUDA).dtype(at::kLong))
                    .mul(37)
                    .add(11)
                    .remainder(c.vocab)),
        scale(noise({c.rows}, 3, at::kFloat)) {
    if (c.rows > 1) targets[c.rows - 1] = c.vocab - 1;  // the last column of all
  }

  at::Tensor hidden, weight, targets, scale;
};

struct Results {
  at::Tensor logp, hidden, weight;
};

enum class Weight { kFrozen, kTrained };

template <class Function>
Results run(const Function& function, const Operands& in, at::ScalarType dtype, Weight weight) {
  const at::Tensor h = in.hidden.to(dtype).detach().clone().set_requires_grad(true);
  const at::Tensor w = in.weight.to(dtype).detach().clone().set_requires_grad(weight == Weight::kTrained);
  const at::Tensor logp = function(h, w);
  (logp * in.scale).sum().backward();
  return {logp.detach(), h.grad(), w.grad()};
}

Results plain(const Operands& in, at::ScalarType dtype, Weight weight) {
  return run(
      [&](const at::Tensor& h, const at::Tensor& w) {
        const at::Tensor logits = at::linear(h, w).to(dtype == at::kDouble ? at::kDouble : at::kFloat);
        return at::log_softmax(logits, 1).gather(1, in.targets.unsqueeze(1)).squeeze(1);
      },
      in, dtype, weight);
}

double size_of(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.to(at::kDouble).square().mean().sqrt().item<double>();
}

void expect_as_good(const at::Tensor& found, const at::Tensor& twin, const at::Tensor& exact, const Case& c,
                    const std::string& what) {
  ASSERT_EQ(found.sizes(), exact.sizes()) << what;
  ASSERT_FALSE(found.isnan().any().item<bool>()) << what;
  if (found.numel() == 0) return;
  const double bound = c.dtype == at::kFloat ? 1e-5 * size_of(exact)
                                             : 1.5 * rms_difference(twin, exact) + 1e-6 * size_of(exact);
  EXPECT_LE(rms_difference(found, exact), bound) << what;
}

void compare(const Case& c) {
  const Operands in(c);
  for (const Weight weight : {Weight::kFrozen, Weight::kTrained}) {
    const at::ScalarType exact_dtype = c.rows * c.vocab > (int64_t{1} << 26) ? at::kFloat : at::kDouble;
    const Results exact = plain(in, exact_dtype, weight), twin = plain(in, c.dtype, weight);
    for (const bool known : {false, true}) {
      if (known && weight == Weight::kFrozen) continue;
      const Results found = run(
          [&](const at::Tensor& h, const at::Tensor& w) {
            TokenLogProbsOptions options{.chunk_tokens = c.chunk};
            if (known) options.row_scale_M = in.scale;
            return token_log_probs(h, w, in.targets, options);
          },
          in, c.dtype, weight);
      const std::string what = c.text() + (known ? ", factors known" : "");
      expect_as_good(found.logp, twin.logp, exact.logp, c, what + ", log-probabilities");
      expect_as_good(found.hidden, twin.hidden, exact.hidden, c, what + ", hidden");
      ASSERT_EQ(found.weight.defined(), weight == Weight::kTrained);
      if (found.weight.defined())
        expect_as_good(found.weight, twin.weight, exact.weight, c, what + ", weight");
    }
  }
}

TEST_F(TokenLogProbsOnGpu, EqualsTheTwinOverShapesAndDtypes) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t vocab : {1000, 1001, 2049}) {
      for (const int64_t rows : {1, 127, 129, 1000}) compare({rows, 64, vocab, dtype});
    }
    compare({129, 64, 1001, dtype, 50});
    compare({7, 6, 13, dtype, 3});     // rows that no vector fits
    compare({133, 64, 16385, dtype});  // a whole block a row, one element in its last vector
    compare({131, 64, 151936, dtype});
    compare({264, 72, 152064, dtype, 200});
  }
  compare({4096, 64, 1000});
  compare({200, 64, 262144});  // more than a multiprocessor holds
}

TEST_F(TokenLogProbsOnGpu, NoRowsGiveNothingAndZeros) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    for (const bool known : {false, true}) {
      const Operands in({0, 64, 1000, dtype});
      const Results found = run(
          [&](const at::Tensor& h, const at::Tensor& w) {
            TokenLogProbsOptions options;
            if (known) options.row_scale_M = in.scale;
            return token_log_probs(h, w, in.targets, options);
          },
          in, dtype, Weight::kTrained);
      EXPECT_EQ(found.logp.numel(), 0);
      EXPECT_EQ(found.hidden.sizes(), at::IntArrayRef({0, 64}));
      EXPECT_EQ(largest(found.weight), 0.0);
    }
  }
}

TEST_F(TokenLogProbsOnGpu, OfEqualLogitsTheFirstIsTheLargest) {
  for (const int64_t vocab : {1001, 151936}) {
    const at::Tensor hidden = at::full({4, 64}, 1.0, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
    const at::Tensor weight = at::zeros({vocab, 64}, hidden.options());
    weight[5].fill_(0.5);
    weight[vocab - 1].fill_(0.5);
    weight[700].fill_(0.5);
    const at::Tensor targets = at::full({4}, 5, hidden.options().dtype(at::kLong));
    targets[1] = 700;
    targets[2] = vocab - 1;
    targets[3] = 0;
    const at::Tensor hits = at::full({4}, true, hidden.options().dtype(at::kBool));
    token_log_probs(hidden, weight, targets, {.is_argmax_M = hits});
    const at::Tensor host = hits.cpu();
    EXPECT_TRUE(host[0].item<bool>()) << vocab;
    for (int64_t row = 1; row < 4; ++row) EXPECT_FALSE(host[row].item<bool>()) << vocab << ", row " << row;
  }
}

TEST_F(TokenLogProbsOnGpu, SaysWhichTargetsHaveTheLargestLogit) {
  for (const int64_t vocab : {1001, 152064}) {
    const Operands in({300, 64, vocab});
    const at::Tensor best = at::linear(in.hidden, in.weight).to(at::kFloat).argmax(1);
    const at::Tensor even = at::arange(300, best.options()).remainder(2).eq(0);
    const at::Tensor targets = best.where(even, best.add(1).remainder(vocab));
    const at::Tensor hits = at::full({300}, false, even.options());
    token_log_probs(in.hidden, in.weight, targets, {.chunk_tokens = 256, .is_argmax_M = hits});
    EXPECT_EQ(hits.eq(even).sum().item<int64_t>(), 300) << vocab;
  }
}

TEST_F(TokenLogProbsOnGpu, ATargetThatDoesNotExistGivesNoNumberAndHarmsNoOther) {
  Operands in({6, 64, 1001});
  in.targets[2] = 1001;
  in.targets[4] = -1;
  const at::Tensor h = in.hidden.clone().set_requires_grad(true);
  const at::Tensor hits = at::full({6}, true, in.targets.options().dtype(at::kBool));
  const at::Tensor logp = token_log_probs(h, in.weight, in.targets, {.is_argmax_M = hits});
  logp.sum().backward();
  for (int64_t row = 0; row < 6; ++row) {
    const bool is_broken = row == 2 || row == 4;
    EXPECT_EQ(logp[row].isnan().item<bool>(), is_broken) << row;
    EXPECT_EQ(h.grad()[row].isnan().any().item<bool>(), is_broken) << row;
    EXPECT_FALSE(is_broken && hits[row].item<bool>()) << row;
  }
}

TEST_F(TokenLogProbsOnGpu, AnotherGradientThanTheFactorsBecomesNoNumber) {
  const Operands in({5, 64, 1001});
  const at::Tensor h = in.hidden.clone().set_requires_grad(true),
                   w = in.weight.clone().set_requires_grad(true);
  const at::Tensor logp = token_log_probs(h, w, in.targets, {.row_scale_M = in.scale});
  at::Tensor other = in.scale.clone();
  other[3].mul_(1.01);
  (logp * other).sum().backward();
  for (int64_t row = 0; row < 5; ++row) EXPECT_EQ(h.grad()[row].isnan().any().item<bool>(), row == 3) << row;
}

// Under no-grad, too, the next row is fetched while this one is read.
TEST_F(TokenLogProbsOnGpu, WithoutATapeTheValuesAreTheSame) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t vocab : {1001, 152064}) {
      const Operands in({280, 64, vocab, dtype});
      const at::Tensor h = in.hidden.clone().set_requires_grad(true);
      const at::Tensor taped = token_log_probs(h, in.weight, in.targets).detach();
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(token_log_probs(h, in.weight, in.targets).equal(taped)) << vocab;
    }
  }
}

TEST_F(TokenLogProbsOnGpu, TwoRunsGiveTheSameBits) {
  const Operands in({280, 64, 151936});
  const auto function = [&](const at::Tensor& h, const at::Tensor& w) {
    return token_log_probs(h, w, in.targets, {.chunk_tokens = 128});
  };
  const Results first = run(function, in, at::kBFloat16, Weight::kTrained);
  const Results second = run(function, in, at::kBFloat16, Weight::kTrained);
  EXPECT_TRUE(first.logp.equal(second.logp));
  EXPECT_TRUE(first.hidden.equal(second.hidden));
  EXPECT_TRUE(first.weight.equal(second.weight));
}

/// The weight's gradient through a sink of this dtype, written by the first use and added to by the second.
at::Tensor through_sink(const Operands& in, at::ScalarType grad_dtype, bool known) {
  const at::Tensor w = in.weight.clone().set_requires_grad(true);
  memory::ParamGroup group({memory::GroupParameter{.name = "head", .tensor = w}}, {.grad_dtype = grad_dtype});
  memory::GradSink sink({&group});
  for (int use = 0; use < 2; ++use) {
    sink.expect(w);
    const at::Tensor h = in.hidden.clone().set_requires_grad(true);
    TokenLogProbsOptions options{.chunk_tokens = 100, .gradients = &sink};
    if (known) options.row_scale_M = in.scale;
    (token_log_probs(h, w, in.targets, options) * in.scale).sum().backward();
    EXPECT_FALSE(w.grad().defined());
    sink.add(w, {});
    sink.flush();
  }
  group.begin_reduce();
  group.finish_reduce({});
  return group.reduced_grad().narrow(0, 0, w.numel()).view(w.sizes()).clone();
}

TEST_F(TokenLogProbsOnGpu, ASinkTakesTheWeightGradient) {
  const Case c{257, 64, 1001};
  const Operands in(c);
  const at::Tensor exact = plain(in, at::kDouble, Weight::kTrained).weight * 2;
  const at::Tensor twin = plain(in, at::kBFloat16, Weight::kTrained).weight * 2;
  for (const bool known : {false, true}) {
    const std::string what = known ? "factors known" : "";
    expect_as_good(through_sink(in, at::kFloat, known), twin, exact, c, "fp32 " + what);
    const at::Tensor rounded = through_sink(in, at::kBFloat16, known);
    EXPECT_EQ(rounded.scalar_type(), at::kBFloat16);
    EXPECT_LE(rms_difference(rounded, exact), 0.01 * size_of(exact)) << what;  // six sums in bf16
  }
}

TEST_F(TokenLogProbsOnGpu, ReadsRowsThatLieApart) {
  const Case c{129, 64, 1001};
  const Operands in(c);
  const at::Tensor wide = at::full({129, 80}, kNaN, in.hidden.options());
  wide.narrow(1, 8, 64).copy_(in.hidden);
  const at::Tensor wanted = token_log_probs(in.hidden, in.weight, in.targets);
  EXPECT_TRUE(token_log_probs(wide.narrow(1, 8, 64), in.weight, in.targets).equal(wanted));
}

}  // namespace
}  // namespace apus::ops
