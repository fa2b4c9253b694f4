#include "apus/train/preference_loss.h"

#include <gtest/gtest.h>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <cmath>

#include "apus/base/error.h"

namespace apus::train {
namespace {

using Type = PreferenceLossType;

constexpr std::array kAll = {Type::kSigmoid,  Type::kHinge,       Type::kIpo,     Type::kExoPair,
                             Type::kNcaPair,  Type::kRobust,      Type::kBcoPair, Type::kSppoHard,
                             Type::kAot,      Type::kAotUnpaired, Type::kApoZero, Type::kApoDown,
                             Type::kDiscopop, Type::kSigmoidNorm};

/// The reference is 0, so that c and r are the policy's own.
PairLogProbs pairs_of(const std::vector<double>& chosen, const std::vector<double>& rejected,
                      at::ScalarType dtype = at::kDouble) {
  const at::Tensor zeros = at::tensor(std::vector<double>(chosen.size(), 0.0)).to(dtype);
  return {.policy_chosen = at::tensor(chosen).to(dtype).requires_grad_(true),
          .policy_rejected = at::tensor(rejected).to(dtype).requires_grad_(true),
          .reference_chosen = zeros,
          .reference_rejected = zeros,
          .chosen_tokens = zeros.add(4),
          .rejected_tokens = zeros.add(2)};
}

PreferenceLossOptions only(Type type) {
  return {.terms = {{.type = type}}, .label_smoothing = type == Type::kExoPair ? 1e-3 : 0.0};
}

double first(const at::Tensor& values) {
  return values[0].item<double>();
}

double value(const PreferenceLossOptions& options, const PairLogProbs& pairs) {
  return first(PreferenceLoss(options).per_pair(pairs));
}

double log_sigmoid(double x) {
  return -std::log1p(std::exp(-x));
}

std::string refusal(const PreferenceLossOptions& options) {
  try {
    const PreferenceLoss loss(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

std::string refusal(const std::vector<std::string>& names, const std::vector<double>& weights,
                    LossVariant variant) {
  try {
    parse_preference_terms(names, weights, variant);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PreferenceLoss, SigmoidIsTheFormulaOfThePaper) {
  const PairLogProbs pairs = pairs_of({-1.0F}, {-3.0F});
  EXPECT_NEAR(value(only(Type::kSigmoid), pairs), -log_sigmoid(0.1 * 2.0), 1e-12);
}

TEST(PreferenceLoss, MarginsAreSubtractedWhereBetaTimesTheDifferenceIsLookedAt) {
  PairLogProbs pairs = pairs_of({-1.0F}, {-3.0F});
  for (const Type type : kAll) {
    const PreferenceLossOptions options = only(type);
    pairs.margins = at::Tensor();
    const double without = value(options, pairs);
    pairs.margins = at::tensor(std::vector<float>{0.5F});
    const double with = value(options, pairs);
    const bool ignores = !PreferenceLoss(options).losses_without_margin().empty();
    EXPECT_EQ(with == without, ignores) << loss_name(type, LossVariant::kCurrent);
  }
  EXPECT_NEAR(value(only(Type::kSigmoid), pairs), -log_sigmoid(0.2 - 0.5), 1e-7);
  EXPECT_NEAR(value(only(Type::kHinge), pairs), 1 - (0.2 - 0.5), 1e-7);
}

TEST(PreferenceLoss, MarginsWithoutEffectAreNamed) {
  EXPECT_TRUE(says(PreferenceLoss(only(Type::kIpo)).margin_note(), "loss_type ipo has no use for it"));
  const PreferenceLoss both(
      {.terms = {{Type::kSigmoid}, {Type::kAotUnpaired}}, .variant = LossVariant::kTrl024});
  EXPECT_TRUE(says(both.margin_note(), "without effect on aot_pair")) << both.margin_note();
  EXPECT_TRUE(PreferenceLoss(only(Type::kRobust)).losses_without_margin().empty());
}

/// All losses with all divergences they take, for log-ratios of `size`.
void expect_no_nan(double size, at::ScalarType dtype) {
  for (const Type type : kAll) {
    for (const FDivergence divergence : {FDivergence::kReverseKl, FDivergence::kForwardKl,
                                         FDivergence::kJsDivergence, FDivergence::kAlphaDivergence}) {
      PreferenceLossOptions options = only(type);
      options.f_divergence = divergence;
      if (!refusal(options).empty()) continue;
      const PairLogProbs pairs = pairs_of({-size, size, 0, size}, {size, -size, -size, size}, dtype);
      const at::Tensor loss = PreferenceLoss(options).per_pair(pairs);
      const std::string what = loss_name(type, LossVariant::kCurrent) + " at " + std::to_string(size);
      EXPECT_EQ(loss.scalar_type(), dtype) << what;
      EXPECT_FALSE(loss.isnan().any().item<bool>()) << what;
      loss.sum().backward();
      EXPECT_FALSE(pairs.policy_chosen.grad().isnan().any().item<bool>()) << what;
      EXPECT_FALSE(pairs.policy_rejected.grad().isnan().any().item<bool>()) << what;
    }
  }
}

TEST(PreferenceLoss, ExtremeLogProbabilitiesGiveNoNaN) {
  for (const double size : {1e3, 1e5, 1e9}) {
    expect_no_nan(size, at::kDouble);
    expect_no_nan(size, at::kFloat);
  }
}

TEST(PreferenceLoss, Fp32RoundsInTheOrderOfTheVariant) {
  // 1e8 + 6 and 1e8 + 10 are rounded to multiples of 8: TRL 1.16 takes policy - reference first, which is
  // exact here, TRL 0.24 chosen - rejected.
  PairLogProbs pairs = pairs_of({1e8}, {-8.0}, at::kFloat);
  pairs.reference_chosen = at::tensor(std::vector<float>{1e8F - 8});
  pairs.reference_rejected = at::tensor(std::vector<float>{-4.0F});
  PreferenceLossOptions options{.terms = {{Type::kHinge}}, .beta = 0.0625};
  EXPECT_EQ(value(options, pairs), 1 - 0.0625 * (8.0 + 4.0));
  options.variant = LossVariant::kTrl024;
  const float legacy = (1e8F - -8.0F) - ((1e8F - 8.0F) - -4.0F);
  EXPECT_EQ(value(options, pairs), std::max(0.0, 1 - 0.0625 * legacy));
  EXPECT_NE(legacy, 12.0F);
}

TEST(PreferenceLoss, Trl024BoundsTheExponentOfItsAlphaDivergence) {
  PreferenceLossOptions options{.terms = {{Type::kHinge}},
                                .variant = LossVariant::kTrl024,
                                .f_divergence = FDivergence::kAlphaDivergence};
  for (const double ratio : {-85.0, -200.0}) {
    const PairLogProbs pairs = pairs_of({ratio}, {0.0});
    const double wanted = 1 - 0.1 * (1 - std::exp(std::min(-ratio, 88.7228)));
    EXPECT_NEAR(value(options, pairs), wanted, 1e-12 * wanted) << ratio;
  }
}

TEST(PreferenceLoss, DiscopopIsFiniteWhereItsExponentialAloneIsNot) {
  // exp(-x) overflows in fp64 at x = -800, its product with sigmoid(x / tau) is 0.
  const PairLogProbs pairs = pairs_of({-8000.0F}, {0.0F});
  const at::Tensor loss = PreferenceLoss(only(Type::kDiscopop)).per_pair(pairs);
  EXPECT_NEAR(first(loss), 800.0, 1e-6);
  loss.sum().backward();
  EXPECT_NEAR(pairs.policy_chosen.grad()[0].item<double>(), -0.1, 1e-6);
}

TEST(PreferenceLoss, TermsAddUpByTheirWeights) {
  const PairLogProbs pairs = pairs_of({-1.0F, -2.0F}, {-3.0F, 0.5F});
  const PreferenceLoss sum(
      {.terms = {{Type::kSigmoid, 0.8}, {Type::kApoZero, 0.2}, {Type::kSft, 3.0}}, .rpo_alpha = 0.5});
  const double wanted = 0.8 * value(only(Type::kSigmoid), pairs) + 0.2 * value(only(Type::kApoZero), pairs);
  EXPECT_NEAR(first(sum.per_pair(pairs)), wanted, 1e-12);
  EXPECT_DOUBLE_EQ(sum.nll_weight(), 3.5) << "sft and rpo_alpha add the same mean";
  EXPECT_FALSE(PreferenceLoss(only(Type::kSft)).per_pair(pairs).defined());
}

TEST(PreferenceLoss, Trl024SmoothsTheSigmoidAndNormalisesForIpo) {
  const PairLogProbs pairs = pairs_of({-1.0F}, {-3.0F});
  PreferenceLossOptions options{.variant = LossVariant::kTrl024, .label_smoothing = 0.1};
  EXPECT_NEAR(value(options, pairs), -0.9 * log_sigmoid(0.2) - 0.1 * log_sigmoid(-0.2), 1e-12);
  options.terms = {{Type::kSigmoid}, {Type::kIpo}};
  options.label_smoothing = 0;
  const double d = -1.0 / 4 + 3.0 / 2;  // both losses see log-probabilities a token
  EXPECT_NEAR(value(options, pairs), -log_sigmoid(0.1 * d) + std::pow(d - 5.0, 2), 1e-9);
  EXPECT_NEAR(first(PreferenceLoss(options).rewards(pairs).chosen), 2 * 0.1 * -0.25, 1e-12)
      << "times the weights";
}

TEST(PreferenceLoss, Trl024SubtractsTheRunningMeanInBco) {
  PairLogProbs pairs = pairs_of({-1.0F}, {-3.0F});
  pairs.running_mean = 0.25;
  PreferenceLossOptions options = only(Type::kBcoPair);
  EXPECT_NEAR(value(options, pairs), -log_sigmoid(-0.1) - log_sigmoid(0.3), 1e-9) << "not in TRL 1.16";
  options.variant = LossVariant::kTrl024;
  EXPECT_NEAR(value(options, pairs), -log_sigmoid(-0.1 - 0.25) - log_sigmoid(0.3 + 0.25), 1e-9);
  EXPECT_TRUE(PreferenceLoss(options).has_running_mean());
}

TEST(PreferenceLoss, AlphaNearOneIsReverseKl) {
  PreferenceLossOptions options{.f_divergence = FDivergence::kAlphaDivergence, .f_alpha = 1.0};
  const PairLogProbs pairs = pairs_of({-1.0F}, {-3.0F});
  EXPECT_DOUBLE_EQ(value(options, pairs), value(only(Type::kSigmoid), pairs));
}

TEST(PreferenceLoss, SettingsWithoutAValueAreRefused) {
  EXPECT_TRUE(says(refusal({.beta = 0}), "beta must be a positive number"));
  EXPECT_TRUE(says(refusal({.label_smoothing = 1.0}), "label_smoothing is 1"));
  EXPECT_TRUE(says(refusal({.terms = {{Type::kRobust}}, .label_smoothing = 0.5}), "below 0.5"));
  EXPECT_TRUE(says(refusal({.terms = {{Type::kExoPair}}}), "needs a label_smoothing above 0"));
  EXPECT_TRUE(refusal({.terms = {{Type::kExoPair}}, .variant = LossVariant::kTrl024}).empty());
  EXPECT_TRUE(says(refusal({.discopop_tau = 0}), "discopop_tau"));
  EXPECT_TRUE(says(refusal({.terms = {}}), "no loss"));
  EXPECT_TRUE(says(refusal({.terms = {{Type::kSigmoid, INFINITY}}}), "weight of loss_type sigmoid"));
  EXPECT_TRUE(says(refusal({.rpo_alpha = NAN}), "rpo_alpha"));
}

TEST(PreferenceLoss, DivergencesAreRefusedWhereTrlHasNone) {
  for (const Type type : kAll) {
    PreferenceLossOptions options = only(type);
    options.f_divergence = FDivergence::kJsDivergence;
    const bool allowed = type == Type::kSigmoid || type == Type::kSigmoidNorm || type == Type::kHinge ||
                         type == Type::kIpo || type == Type::kExoPair || type == Type::kRobust ||
                         type == Type::kDiscopop;
    EXPECT_EQ(refusal(options).empty(), allowed) << loss_name(type, LossVariant::kCurrent);
  }
  EXPECT_TRUE(says(refusal({.variant = LossVariant::kTrl024, .f_divergence = FDivergence::kForwardKl}),
                   "forward_kl"));
  EXPECT_TRUE(
      says(refusal({.terms = {{Type::kSigmoidNorm}}, .variant = LossVariant::kTrl024}), "sigmoid_norm"));
}

TEST(PreferenceLoss, NamesAreThoseOfTheVariant) {
  EXPECT_EQ(parse_preference_terms({"aot_pair"}, {}, LossVariant::kTrl024).at(0).type, Type::kAotUnpaired);
  EXPECT_TRUE(says(refusal({"aot_pair"}, {}, LossVariant::kCurrent), "it is called aot_unpaired here"));
  EXPECT_TRUE(says(refusal({"sigmoid_norm"}, {}, LossVariant::kTrl024), "it does not exist here"));
  EXPECT_TRUE(says(refusal({"sigmiod"}, {}, LossVariant::kCurrent), "did you mean 'sigmoid'?"));
  EXPECT_TRUE(says(refusal({"sigmoid", "sft"}, {1.0}, LossVariant::kCurrent), "1 numbers for 2 losses"));
  EXPECT_TRUE(says(refusal({"sft", "sft"}, {}, LossVariant::kCurrent), "names sft twice"));
  const auto terms = parse_preference_terms({"sigmoid", "sft"}, {0.8, 1.0}, LossVariant::kCurrent);
  EXPECT_DOUBLE_EQ(terms.at(0).weight, 0.8);
  for (const Type type : kAll)
    EXPECT_EQ(parse_preference_terms({loss_name(type, LossVariant::kCurrent)}, {}, LossVariant::kCurrent)
                  .at(0)
                  .type,
              type);
  EXPECT_THROW(parse_loss_variant("trl0.29"), ConfigError);
  EXPECT_EQ(parse_loss_variant("trl0.24"), LossVariant::kTrl024);
  EXPECT_THROW(parse_f_divergence("kl"), ConfigError);
}

TEST(PreferenceLoss, SettingsThatNoLossReadsAreNoted) {
  EXPECT_TRUE(PreferenceLoss({}).notes().empty());
  const auto smoothed = PreferenceLoss({.label_smoothing = 0.1}).notes();
  ASSERT_EQ(smoothed.size(), 1U);
  EXPECT_TRUE(says(smoothed[0], "--loss_variant trl0.24"));
  EXPECT_TRUE(PreferenceLoss({.variant = LossVariant::kTrl024, .label_smoothing = 0.1}).notes().empty());
  EXPECT_TRUE(PreferenceLoss({.terms = {{Type::kAot}}, .label_smoothing = 0.1}).notes().empty());
  EXPECT_EQ(PreferenceLoss({.f_alpha = 0.3, .discopop_tau = 0.1}).notes().size(), 2U);
}

TEST(PreferenceLoss, SaysWhatSorts) {
  EXPECT_TRUE(PreferenceLoss(only(Type::kAot)).sorts());
  EXPECT_TRUE(PreferenceLoss(only(Type::kAotUnpaired)).sorts());
  EXPECT_FALSE(PreferenceLoss(only(Type::kSigmoid)).sorts());
}

}  // namespace
}  // namespace apus::train
