#include "apus/ops/token_log_probs.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <tuple>
#include <vector>

#include "apus/base/error.h"
#include "apus/memory/grad_sink.h"
#include "tests/support/memory_meter.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

at::Tensor targets_for(int64_t rows, int64_t vocab) {
  at::Tensor targets = at::empty({rows}, at::kLong);
  for (int64_t i = 0; i < rows; ++i) targets[i] = (i * 37 + 11) % vocab;
  return targets;
}

// The slow twin: whole logits, the tape's own log_softmax.
at::Tensor plain_log_probs(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets) {
  const at::Tensor logits = at::linear(hidden, weight).to(at::kFloat);
  return at::log_softmax(logits, 1).gather(1, targets.unsqueeze(1)).squeeze(1);
}

struct Gradients {
  at::Tensor logp, hidden, weight;
};

template <typename Function>
Gradients run(const Function& function, const at::Tensor& hidden, const at::Tensor& weight,
              const at::Tensor& targets, bool hidden_wanted = true, bool weight_wanted = true) {
  const at::Tensor h = hidden.detach().clone().set_requires_grad(hidden_wanted);
  const at::Tensor w = weight.detach().clone().set_requires_grad(weight_wanted);
  const at::Tensor logp = function(h, w, targets);
  if (hidden_wanted || weight_wanted) (logp * random_tensor(logp.sizes(), 77)).sum().backward();
  return {logp.detach(), h.grad(), w.grad()};
}

auto chunked(int64_t chunk) {
  return [chunk](const at::Tensor& h, const at::Tensor& w, const at::Tensor& t) {
    return token_log_probs(h, w, t, {.chunk_tokens = chunk});
  };
}

using Wanted = std::tuple<int64_t, bool, bool>;
class TokenLogProbs : public ::testing::TestWithParam<Wanted> {};

TEST_P(TokenLogProbs, EqualsTheSlowTwin) {
  const auto [chunk, hidden_wanted, weight_wanted] = GetParam();
  const at::Tensor hidden = random_tensor({7, 6}, 1), weight = random_tensor({13, 6}, 2);
  const at::Tensor targets = targets_for(7, 13);
  const Gradients found = run(chunked(chunk), hidden, weight, targets, hidden_wanted, weight_wanted);
  const Gradients wanted = run(plain_log_probs, hidden, weight, targets);
  EXPECT_EQ(found.logp.scalar_type(), at::kFloat);
  expect_close(found.logp, wanted.logp, {.absolute = 1e-6, .relative = 1e-6});
  EXPECT_EQ(found.hidden.defined(), hidden_wanted);
  EXPECT_EQ(found.weight.defined(), weight_wanted);
  if (hidden_wanted) expect_close(found.hidden, wanted.hidden, {.absolute = 2e-6, .relative = 1e-5});
  if (weight_wanted) expect_close(found.weight, wanted.weight, {.absolute = 2e-6, .relative = 1e-5});
}

INSTANTIATE_TEST_SUITE_P(ChunksAndGradients, TokenLogProbs,
                         ::testing::Combine(::testing::Values(0, 1, 3, 7, 100), ::testing::Bool(),
                                            ::testing::Bool()));

TEST(TokenLogProbs, NoRowsGiveNoValuesAndZeroGradients) {
  const Gradients found =
      run(chunked(0), random_tensor({0, 6}, 1), random_tensor({13, 6}, 2), targets_for(0, 13));
  EXPECT_EQ(found.logp.sizes(), at::IntArrayRef({0}));
  EXPECT_EQ(found.hidden.sizes(), at::IntArrayRef({0, 6}));
  EXPECT_EQ(found.weight.sizes(), at::IntArrayRef({13, 6}));
  EXPECT_EQ(largest(found.weight), 0.0);
}

TEST(TokenLogProbs, GradientsAreThoseOfFiniteDifferences) {
  const at::Tensor targets = targets_for(5, 9);
  check_gradients([&](const auto& in) { return token_log_probs(in[0], in[1], targets, {.chunk_tokens = 2}); },
                  {random_tensor({5, 4}, 1), random_tensor({9, 4}, 2)});
}

// numbers.md, point 4: at most 1.5 times the error that PyTorch makes in bf16.
TEST(TokenLogProbs, Bf16IsAsGoodAsPyTorchs) {
  const at::Tensor hidden = random_tensor({64, 32}, 1, at::kBFloat16),
                   weight = random_tensor({97, 32}, 2, at::kBFloat16);
  const at::Tensor targets = targets_for(64, 97);
  const Gradients exact = run(plain_log_probs, hidden.to(at::kFloat), weight.to(at::kFloat), targets);
  const Gradients peer = run(plain_log_probs, hidden, weight, targets);
  const Gradients found = run(chunked(16), hidden, weight, targets);
  EXPECT_EQ(found.hidden.scalar_type(), at::kBFloat16);
  EXPECT_EQ(found.weight.scalar_type(), at::kBFloat16);
  EXPECT_LE(rms_difference(found.logp, exact.logp), 1.5 * rms_difference(peer.logp, exact.logp));
  EXPECT_LE(rms_difference(found.hidden, exact.hidden), 1.5 * rms_difference(peer.hidden, exact.hidden));
  EXPECT_LE(rms_difference(found.weight, exact.weight), 1.5 * rms_difference(peer.weight, exact.weight));
}

// A confident row's gradient is a difference of nearly equal vectors; it must not drown in bf16 rounding.
TEST(TokenLogProbs, KeepsTheSmallGradientOfAConfidentRow) {
  at::Tensor weight = random_tensor({8, 16}, 2, at::kBFloat16);
  const at::Tensor hidden = weight.narrow(0, 3, 1) * 0.7;
  const at::Tensor targets = at::empty({1}, at::kLong).fill_(3);
  const Gradients exact = run(plain_log_probs, hidden.to(at::kFloat), weight.to(at::kFloat), targets);
  ASSERT_GT(exact.logp.item<double>(), -0.1);
  const Gradients found = run(chunked(0), hidden, weight, targets);
  EXPECT_LE(rms_difference(found.hidden, exact.hidden), 0.05 * largest(exact.hidden));
}

TEST(TokenLogProbs, SurvivesLargeLogits) {
  const Gradients found =
      run(chunked(2), random_tensor({4, 6}, 1) * 1e3, random_tensor({13, 6}, 2) * 1e2, targets_for(4, 13));
  for (const at::Tensor& x : {found.logp, found.hidden, found.weight})
    EXPECT_TRUE(x.isfinite().all().item<bool>());
}

TEST(TokenLogProbs, LogitsAreNeverWhole) {
  constexpr int64_t kRows = 64, kWidth = 8, kVocab = 4000, kChunk = 4;
  const at::Tensor hidden = random_leaf({kRows, kWidth}, 1), weight = random_tensor({kVocab, kWidth}, 2);
  const at::Tensor targets = targets_for(kRows, kVocab);
  const MemoryMeter meter;
  token_log_probs(hidden, weight, targets, {.chunk_tokens = kChunk}).sum().backward();
  constexpr int64_t kChunkBytes = kChunk * kVocab * 4;
  EXPECT_GE(meter.peak_bytes(), kChunkBytes);
  EXPECT_LE(meter.peak_bytes(), 4 * kChunkBytes);  // whole logits would be 16
}

TEST(TokenLogProbs, KeepsTheRowsOfTheGradientAndNothingAfterBackward) {
  constexpr int64_t kRows = 32, kWidth = 8;
  const at::Tensor hidden = random_leaf({kRows, kWidth}, 1), weight = random_tensor({50, kWidth}, 2);
  const at::Tensor targets = targets_for(kRows, 50);
  const MemoryMeter meter;
  const at::Tensor logp = token_log_probs(hidden, weight, targets);
  EXPECT_EQ(meter.live_bytes(), kRows * 4 + kRows * kWidth * 4);
  logp.sum().backward();
  EXPECT_LE(meter.live_bytes(), kRows * 4 + kRows * kWidth * 4) << "logp and hidden.grad() alone";
}

TEST(TokenLogProbs, KeepsNothingWithoutATape) {
  const at::Tensor hidden = random_leaf({32, 8}, 1), weight = random_leaf({50, 8}, 2);
  const at::Tensor targets = targets_for(32, 50);
  const at::NoGradGuard no_grad;
  const MemoryMeter meter;
  const at::Tensor logp = token_log_probs(hidden, weight, targets);
  EXPECT_FALSE(logp.requires_grad());
  EXPECT_EQ(meter.live_bytes(), 32 * 4);
}

TEST(TokenLogProbs, BackwardMayRunTwiceOnAKeptGraph) {
  const at::Tensor hidden = random_leaf({5, 6}, 1), weight = random_leaf({13, 6}, 2);
  const at::Tensor loss = token_log_probs(hidden, weight, targets_for(5, 13)).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once_hidden = hidden.grad().clone(), once_weight = weight.grad().clone();
  loss.backward();
  expect_close(hidden.grad(), once_hidden * 2, {.relative = 1e-6});
  expect_close(weight.grad(), once_weight * 2, {.relative = 1e-6});
}

TEST(TokenLogProbs, RefusesASecondDerivative) {
  const at::Tensor hidden = random_leaf({5, 6}, 1), weight = random_tensor({13, 6}, 2);
  const at::Tensor loss = token_log_probs(hidden, weight, targets_for(5, 13)).sum();
  EXPECT_THROW(loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true), NotSupported);
}

TEST(TokenLogProbs, SaysWhichTargetsHaveTheLargestLogit) {
  const at::Tensor hidden = random_tensor({9, 6}, 1), weight = random_tensor({13, 6}, 2);
  at::Tensor targets = at::linear(hidden, weight).argmax(1);
  for (const int64_t row : {1, 4, 8}) targets[row] = (targets[row].item<int64_t>() + 1) % 13;
  for (const int64_t chunk : {0, 1, 4}) {
    const at::Tensor hits = at::empty({9}, at::kBool);
    const at::Tensor found =
        token_log_probs(hidden, weight, targets, {.chunk_tokens = chunk, .is_argmax_M = hits});
    EXPECT_EQ(std::vector<bool>(hits.const_data_ptr<bool>(), hits.const_data_ptr<bool>() + 9),
              (std::vector<bool>{true, false, true, true, false, true, true, true, false}))
        << chunk;
    EXPECT_TRUE(found.equal(token_log_probs(hidden, weight, targets, {.chunk_tokens = chunk})))
        << "the values do not depend on being asked";
  }
}

TEST(TokenLogProbs, OfEqualLogitsTheFirstIsTheLargest) {
  const at::Tensor hidden = at::ones({3, 2}), weight = at::ones({4, 2});
  const at::Tensor targets = at::arange(3, at::kLong);
  const at::Tensor hits = at::empty({3}, at::kBool);
  token_log_probs(hidden, weight, targets, {.is_argmax_M = hits});
  EXPECT_TRUE(hits[0].item<bool>());
  EXPECT_FALSE(hits[1].item<bool>());
  EXPECT_FALSE(hits[2].item<bool>());
}

// The factors of SFT: known before there is a loss.
struct Scaled {
  at::Tensor hidden = random_leaf({7, 6}, 1), weight = random_leaf({13, 6}, 2);
  at::Tensor targets = targets_for(7, 13), scale = random_tensor({7}, 5);

  at::Tensor loss(const TokenLogProbsOptions& options) const {
    return token_log_probs(hidden, weight, targets, options).mul(scale).sum();
  }
};

TEST(TokenLogProbs, KnownFactorsMakeTheWeightGradientInTheForwardPass) {
  const Scaled wanted, found;
  wanted.loss({}).backward();
  found.loss({.chunk_tokens = 3, .row_scale_M = found.scale}).backward();
  expect_close(found.weight.grad(), wanted.weight.grad(), {.absolute = 2e-6, .relative = 1e-5});
  expect_close(found.hidden.grad(), wanted.hidden.grad(), {.absolute = 2e-6, .relative = 1e-5});
}

TEST(TokenLogProbs, KnownFactorsKeepNoLogitsAndComputeNothingAgain) {
  const Scaled rows;
  const MemoryMeter meter;
  const at::Tensor loss = rows.loss({.row_scale_M = rows.scale});
  const int64_t kept = 7 * 4 /* what mul keeps */ + 7 * 6 * 4 + 13 * 6 * 4 + 4 /* loss */;
  EXPECT_LE(meter.live_bytes(), kept);
}

TEST(TokenLogProbs, RefusesAnotherGradientThanTheFactors) {
  const Scaled rows;
  const at::Tensor loss = rows.loss({.row_scale_M = rows.scale * 2});
  EXPECT_THROW(loss.backward(), ConfigError);
}

TEST(TokenLogProbs, FactorsOfAFrozenWeightAreNotRead) {
  Scaled rows;
  rows.weight = rows.weight.detach();
  rows.loss({.row_scale_M = rows.scale * 2}).backward();
  EXPECT_TRUE(rows.hidden.grad().defined());
}

class TokenLogProbsInto : public ::testing::TestWithParam<bool> {};

TEST_P(TokenLogProbsInto, ASinkTakesTheWeightGradient) {
  const Scaled wanted;
  wanted.loss({}).backward();
  const Scaled found;
  const memory::GroupParameter parameter{.name = "head", .tensor = found.weight};
  memory::ParamGroup group({parameter}, {});
  memory::GradSink sink({&group});
  for (int use = 0; use < 2; ++use) {  // written first, then added to
    sink.expect(found.weight);
    TokenLogProbsOptions options{.chunk_tokens = 3, .gradients = &sink};
    if (GetParam()) options.row_scale_M = found.scale;
    found.loss(options).backward();
    EXPECT_FALSE(found.weight.grad().defined());
    sink.add(found.weight, {});
    sink.flush();
  }
  group.begin_reduce();
  group.finish_reduce({});
  const at::Tensor twice = group.reduced_grad().narrow(0, 0, 13 * 6).view({13, 6});
  expect_close(twice, wanted.weight.grad() * 2, {.absolute = 4e-6, .relative = 1e-5});
}

INSTANTIATE_TEST_SUITE_P(FactorsKnown, TokenLogProbsInto, ::testing::Bool());

TEST(TokenLogProbs, LogitsAreAtMostAThirtySecondPartOfAGpu) {
  EXPECT_EQ(gpu_logit_bytes(int64_t{80} << 30), int64_t{5} << 29);
  EXPECT_EQ(gpu_logit_bytes(int64_t{141} << 30), int64_t{5} << 29);
  EXPECT_EQ(gpu_logit_bytes(int64_t{40} << 30), int64_t{5} << 28);
}

TEST(TokenLogProbs, RefusesFactorsThatDoNotFit) {
  const at::Tensor hidden = at::ones({3, 2}), weight = at::ones({4, 2}), targets = at::zeros({3}, at::kLong);
  EXPECT_THROW(token_log_probs(hidden, weight, targets, {.row_scale_M = at::ones({2})}), ShapeError);
  EXPECT_THROW(token_log_probs(hidden, weight, targets, {.row_scale_M = at::ones({3}, at::kDouble)}),
               ShapeError);
}

TEST(TokenLogProbs, RefusesHitsThatDoNotFit) {
  const at::Tensor hidden = at::ones({3, 2}), weight = at::ones({4, 2}), targets = at::zeros({3}, at::kLong);
  EXPECT_THROW(token_log_probs(hidden, weight, targets, {.is_argmax_M = at::empty({2}, at::kBool)}),
               ShapeError);
  EXPECT_THROW(token_log_probs(hidden, weight, targets, {.is_argmax_M = at::empty({3}, at::kFloat)}),
               ShapeError);
}

TEST(TokenLogProbs, RefusesOperandsThatDoNotFit) {
  const at::Tensor hidden = random_tensor({5, 6}, 1), weight = random_tensor({13, 6}, 2);
  const at::Tensor targets = targets_for(5, 13);
  EXPECT_THROW(token_log_probs(hidden, random_tensor({13, 7}, 2), targets), ShapeError);
  EXPECT_THROW(token_log_probs(hidden, weight.to(at::kBFloat16), targets), ShapeError);
  EXPECT_THROW(token_log_probs(hidden, weight, targets_for(4, 13)), ShapeError);
  EXPECT_THROW(token_log_probs(hidden, weight, targets.to(at::kInt)), ShapeError);
  EXPECT_THROW(token_log_probs(hidden, weight, targets - 100), ShapeError);
  EXPECT_THROW(token_log_probs(hidden, weight, targets + 13), ShapeError);
  EXPECT_THROW(token_log_probs(hidden, weight, targets, {.chunk_tokens = -1}), ConfigError);
  EXPECT_THROW(token_log_probs(hidden, weight, targets, {.chunk_bytes = -1}), ConfigError);
}

}  // namespace
}  // namespace apus::ops
