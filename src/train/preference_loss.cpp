#include "apus/train/preference_loss.h"

#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/nearest_name.h"

namespace apus::train {
namespace {

using Type = PreferenceLossType;

/// What the losses have in common and what not.
struct LossFacts {
  Type type;
  const char* name;         ///< TRL 1.16
  const char* legacy_name;  ///< TRL 0.24; null = it has none
  bool reads_difference;    ///< beta times the difference of scores: takes margins and divergences
  bool reads_divergence;    ///< TRL 1.16 lets it have one
  bool reads_smoothing;     ///< TRL 1.16
};

constexpr std::array kFacts = std::to_array<LossFacts>({
    {Type::kSigmoid, "sigmoid", "sigmoid", true, true, false},
    {Type::kHinge, "hinge", "hinge", true, true, false},
    {Type::kIpo, "ipo", "ipo", false, true, false},
    {Type::kExoPair, "exo_pair", "exo_pair", true, true, true},
    {Type::kNcaPair, "nca_pair", "nca_pair", false, false, false},
    {Type::kRobust, "robust", "robust", true, true, true},
    {Type::kBcoPair, "bco_pair", "bco_pair", false, false, false},
    {Type::kSppoHard, "sppo_hard", "sppo_hard", false, false, false},
    {Type::kAot, "aot", "aot", false, false, true},
    {Type::kAotUnpaired, "aot_unpaired", "aot_pair", false, false, true},
    {Type::kApoZero, "apo_zero", "apo_zero", false, false, false},
    {Type::kApoDown, "apo_down", "apo_down", false, false, false},
    {Type::kDiscopop, "discopop", "discopop", true, true, false},
    {Type::kSigmoidNorm, "sigmoid_norm", nullptr, true, true, false},
    {Type::kSft, "sft", "sft", false, true, false},
});

const LossFacts& facts_of(Type type) {
  return *std::ranges::find(kFacts, type, &LossFacts::type);
}

const char* name_in(const LossFacts& facts, LossVariant variant) {
  return variant == LossVariant::kTrl024 ? facts.legacy_name : facts.name;
}

LossVariant other(LossVariant variant) {
  return variant == LossVariant::kCurrent ? LossVariant::kTrl024 : LossVariant::kCurrent;
}

const char* flag_value(LossVariant variant) {
  return variant == LossVariant::kCurrent ? "current" : "trl0.24";
}

const LossFacts* find_loss(std::string_view name, LossVariant variant) {
  const auto found = std::ranges::find_if(kFacts, [&](const LossFacts& facts) {
    const char* known = name_in(facts, variant);
    return known != nullptr && name == known;
  });
  return found == kFacts.end() ? nullptr : &*found;
}

const LossFacts& require_loss(std::string_view name, LossVariant variant) {
  if (const LossFacts* found = find_loss(name, variant)) return *found;
  if (const LossFacts* elsewhere = find_loss(name, other(variant))) {
    const char* here = name_in(*elsewhere, variant);
    const std::string remedy =
        here ? detail::concat("it is called ", here, " here") : "it does not exist here";
    throw ConfigError(detail::concat("loss_type \"", name, "\" is a name of --loss_variant ",
                                     flag_value(other(variant)), "; with --loss_variant ",
                                     flag_value(variant), " ", remedy));
  }
  std::vector<std::string> known;
  for (const LossFacts& facts : kFacts) {
    if (const char* each = name_in(facts, variant)) known.emplace_back(each);
  }
  throw ConfigError(detail::concat("unknown loss_type \"", name, "\"", did_you_mean(name, known),
                                   "; known are ", join_words(known)));
}

/// -(1 - e) log sigmoid(x) - e log sigmoid(-x).
at::Tensor smoothed(const at::Tensor& x, double smoothing) {
  if (smoothing == 0.0) return at::log_sigmoid(x).neg();
  return at::log_sigmoid(x).mul(smoothing - 1.0).sub(at::log_sigmoid(x.neg()), smoothing);
}

at::Tensor sorted(const at::Tensor& values) {
  return std::get<0>(at::sort(values));
}

/// beta times a difference of log-ratios, less the margin: what most losses look at.
struct Logits {
  at::Tensor operator()(double sign = 1.0) const {
    const at::Tensor x = difference.mul(sign * beta);
    return margins.defined() ? x.sub(margins.to(x.device(), x.scalar_type()), sign) : x;
  }

  at::Tensor difference;
  double beta;
  at::Tensor margins;
};

/// KL between the policy's preference and a smoothed label, for two answers. Each factor has its own product
/// with beta: their gradients nearly cancel, so that the order of rounding shows, and this is TRL's.
at::Tensor exo(const Logits& logits, double smoothing) {
  const at::Tensor chosen = at::sigmoid(logits());
  const at::Tensor log_chosen = at::log_sigmoid(logits());
  const at::Tensor rejected = at::sigmoid(logits(-1.0));
  const at::Tensor log_rejected = at::log_sigmoid(logits(-1.0));
  const at::Tensor epsilon = at::scalar_tensor(smoothing, chosen.options());
  const at::Tensor first = chosen.mul(log_chosen.sub(at::log1p(epsilon.neg())));
  return first.add(rejected.mul(log_rejected.sub(at::log(epsilon))));
}

at::Tensor robust(const Logits& logits, double smoothing) {
  const at::Tensor clean = at::log_sigmoid(logits()).mul(smoothing - 1.0);
  const at::Tensor flipped = at::log_sigmoid(logits(-1.0)).mul(-smoothing);
  return clean.sub(flipped).div(1.0 - 2.0 * smoothing);
}

/// Blend of the logistic and the exponential loss. The exponential joins the sigmoid that multiplies it,
/// since exp(-x) alone overflows where their product is small.
at::Tensor discopop(const at::Tensor& x, double tau) {
  const at::Tensor logistic = at::log_sigmoid(x).neg().mul(at::sigmoid(x.div(tau)).neg().add(1.0));
  return logistic.add(at::exp(at::log_sigmoid(x.div(tau)).sub(x)));
}

at::Tensor squared(const at::Tensor& values) {
  return values.mul(values);
}

/// Values as the formulas read them: fp32 or fp64.
at::Tensor full(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? values : values.to(at::kFloat);
}

at::Tensor per_token(const at::Tensor& values, const at::Tensor& tokens) {
  return values.div(tokens.to(values.scalar_type()).clamp_min(1.0));
}

/// What the formulas read.
struct LogRatios {
  explicit LogRatios(const PairLogProbs& pairs)
      : policy_c(full(pairs.policy_chosen)),
        policy_r(full(pairs.policy_rejected)),
        reference_c(full(pairs.reference_chosen)),
        reference_r(full(pairs.reference_rejected)),
        c(policy_c.sub(reference_c)),
        r(policy_r.sub(reference_r)) {}

  at::Tensor policy_c, policy_r, reference_c, reference_r, c, r;
};

/// What TRL 0.24 makes of the log-ratios, in its order.
at::Tensor legacy_difference(const LogRatios& all, const PreferenceLossOptions& options) {
  if (options.f_divergence == FDivergence::kAlphaDivergence) {
    constexpr double kLargest = 88.7228;  // of fp32, as TRL rounds it
    const double alpha = options.f_alpha.value_or(1.0);
    const auto power = [&](const at::Tensor& log_ratio) {
      return at::exp(log_ratio.mul(-alpha).clamp_max(kLargest));
    };
    return power(all.r).sub(power(all.c)).div(alpha);
  }
  const at::Tensor ratios = all.policy_c.sub(all.policy_r).sub(all.reference_c.sub(all.reference_r));
  if (options.f_divergence != FDivergence::kJsDivergence) return ratios;
  return ratios.sub(at::softplus(all.c).sub(at::softplus(all.r)));
}

}  // namespace

LossVariant parse_loss_variant(std::string_view name) {
  if (name == "current") return LossVariant::kCurrent;
  if (name == "trl0.24") return LossVariant::kTrl024;
  throw ConfigError(detail::concat("--loss_variant is \"", name, "\", expected current or trl0.24"));
}

FDivergence parse_f_divergence(std::string_view name) {
  if (name == "reverse_kl") return FDivergence::kReverseKl;
  if (name == "forward_kl") return FDivergence::kForwardKl;
  if (name == "js_divergence") return FDivergence::kJsDivergence;
  if (name == "alpha_divergence") return FDivergence::kAlphaDivergence;
  throw ConfigError(detail::concat("--f_divergence_type is \"", name,
                                   "\", expected reverse_kl, forward_kl, js_divergence or alpha_divergence"));
}

std::string loss_name(PreferenceLossType type, LossVariant variant) {
  const LossFacts& facts = facts_of(type);
  const char* name = name_in(facts, variant);
  return name ? name : facts.name;
}

std::vector<PreferenceTerm> parse_preference_terms(const std::vector<std::string>& names,
                                                   const std::vector<double>& weights, LossVariant variant) {
  APUS_CHECK(weights.empty() || weights.size() == names.size(), ConfigError, "--loss_weights has ",
             weights.size(), " numbers for ", names.size(), " losses (--loss_type); give one each");
  std::vector<PreferenceTerm> terms;
  for (size_t index = 0; index < names.size(); ++index) {
    const Type type = require_loss(names[index], variant).type;
    APUS_CHECK(std::ranges::find(terms, type, &PreferenceTerm::type) == terms.end(), ConfigError,
               "--loss_type names ", names[index], " twice; give it one weight in --loss_weights");
    terms.push_back({type, weights.empty() ? 1.0 : weights[index]});
  }
  return terms;
}

PreferenceLoss::PreferenceLoss(PreferenceLossOptions options) : options_(std::move(options)) {
  const auto& o = options_;
  APUS_CHECK(o.beta > 0 && std::isfinite(o.beta), ConfigError, "beta must be a positive number, got ", o.beta,
             "; change --beta");
  APUS_CHECK(!o.terms.empty(), ConfigError, "no loss is named; give --loss_type, e.g. sigmoid");
  APUS_CHECK(o.label_smoothing >= 0 && o.label_smoothing < 1, ConfigError, "label_smoothing is ",
             o.label_smoothing, ", expected a number from 0 to below 1");
  APUS_CHECK(o.discopop_tau > 0 && std::isfinite(o.discopop_tau), ConfigError,
             "discopop_tau must be a positive number, got ", o.discopop_tau);
  APUS_CHECK(!o.rpo_alpha || std::isfinite(*o.rpo_alpha), ConfigError, "rpo_alpha must be a finite number");
  APUS_CHECK(!has(Type::kRobust) || o.label_smoothing < 0.5, ConfigError,
             "loss_type robust divides by 1 - 2 label_smoothing: label_smoothing must be below 0.5, got ",
             o.label_smoothing);
  APUS_CHECK(!has(Type::kExoPair) || o.label_smoothing > 0 || is_legacy(), ConfigError,
             "loss_type exo_pair needs a label_smoothing above 0; its paper recommends 1e-3");
  for (const PreferenceTerm& each : o.terms) {
    const LossFacts& facts = facts_of(each.type);
    APUS_CHECK(std::isfinite(each.weight), ConfigError, "the weight of loss_type ", facts.name, " is ",
               each.weight, ", expected a finite number");
    APUS_CHECK(name_in(facts, o.variant) != nullptr, ConfigError, "loss_type ", facts.name,
               " does not exist in --loss_variant ", flag_value(o.variant));
    const bool divides = facts.reads_divergence && !(is_legacy() && each.type == Type::kDiscopop);
    APUS_CHECK(o.f_divergence == FDivergence::kReverseKl || divides, ConfigError, "loss_type ",
               name_in(facts, o.variant),
               " has no form for another f_divergence_type than reverse_kl; take sigmoid, "
               "hinge, ipo, exo_pair or robust");
  }
  APUS_CHECK(!is_legacy() || o.f_divergence != FDivergence::kForwardKl, ConfigError,
             "f_divergence_type forward_kl does not exist in --loss_variant trl0.24");
}

bool PreferenceLoss::has(PreferenceLossType type) const {
  return std::ranges::find(options_.terms, type, &PreferenceTerm::type) != options_.terms.end();
}

bool PreferenceLoss::sorts() const {
  return has(Type::kAot) || has(Type::kAotUnpaired);
}

bool PreferenceLoss::has_running_mean() const {
  return is_legacy() && has(Type::kBcoPair);
}

double PreferenceLoss::nll_weight() const {
  double weight = options_.rpo_alpha.value_or(0.0);
  for (const PreferenceTerm& each : options_.terms) weight += each.type == Type::kSft ? each.weight : 0.0;
  return weight;
}

std::vector<std::string> PreferenceLoss::losses_without_margin() const {
  std::vector<std::string> names;
  for (const PreferenceTerm& each : options_.terms) {
    if (!facts_of(each.type).reads_difference) names.push_back(loss_name(each.type, options_.variant));
  }
  return names;
}

std::string PreferenceLoss::margin_note() const {
  const std::vector<std::string> names = losses_without_margin();
  const std::string without = join_words(names);
  const bool none = names.size() == options_.terms.size();
  if (none) return "Without effect: margin of the rows; loss_type " + without + " has no use for it";
  return "The rows' margin is subtracted from beta times the difference within the loss" +
         (without.empty() ? without : "; without effect on " + without);
}

std::vector<std::string> PreferenceLoss::notes() const {
  const auto reads = [&](auto predicate) { return std::ranges::any_of(options_.terms, predicate); };
  std::vector<std::string> notes;
  const bool smooths = reads([&](const PreferenceTerm& each) {
    return facts_of(each.type).reads_smoothing || (is_legacy() && each.type == Type::kSigmoid);
  });
  if (options_.label_smoothing > 0 && !smooths) {
    notes.push_back(detail::concat(
        "label_smoothing ", options_.label_smoothing, " has no effect: no loss of --loss_type reads it",
        has(Type::kSigmoid)
            ? " (TRL 1.16's sigmoid has none: --loss_variant trl0.24 or --loss_type robust has)"
            : ""));
  }
  if (options_.discopop_tau != PreferenceLossOptions{}.discopop_tau && !has(Type::kDiscopop))
    notes.emplace_back("discopop_tau has no effect: --loss_type does not name discopop");
  if (options_.f_alpha && options_.f_divergence != FDivergence::kAlphaDivergence)
    notes.emplace_back("f_alpha_divergence_coef has no effect: --f_divergence_type is not alpha_divergence");
  return notes;
}

PairLogProbs PreferenceLoss::normalised(PairLogProbs pairs) const {
  if (!is_legacy() || !has(Type::kIpo)) return pairs;
  pairs.policy_chosen = per_token(full(pairs.policy_chosen), pairs.chosen_tokens);
  pairs.policy_rejected = per_token(full(pairs.policy_rejected), pairs.rejected_tokens);
  pairs.reference_chosen = per_token(full(pairs.reference_chosen), pairs.chosen_tokens);
  pairs.reference_rejected = per_token(full(pairs.reference_rejected), pairs.rejected_tokens);
  return pairs;
}

PairRewards PreferenceLoss::rewards(const PairLogProbs& pairs) const {
  const PairLogProbs seen = normalised(pairs);
  double scale = options_.beta;
  if (is_legacy()) {
    double weights = 0.0;
    for (const PreferenceTerm& each : options_.terms) weights += each.weight;
    scale *= weights;
  }
  const auto reward = [&](const at::Tensor& policy, const at::Tensor& reference) {
    return policy.detach().to(at::kDouble).sub(reference.to(at::kDouble)).mul(scale);
  };
  return {reward(seen.policy_chosen, seen.reference_chosen),
          reward(seen.policy_rejected, seen.reference_rejected)};
}

at::Tensor PreferenceLoss::score(const at::Tensor& log_ratio) const {
  // Beyond these exp() has no value; TRL has 80 in the alpha-divergence, and nothing elsewhere.
  const double largest = log_ratio.scalar_type() == at::kDouble ? 700.0 : 88.0;
  constexpr double kLargestAlpha = 80.0;
  switch (options_.f_divergence) {
    case FDivergence::kReverseKl:
      return log_ratio;
    case FDivergence::kForwardKl:
      return at::exp(log_ratio.neg().clamp_max(largest)).neg().add(1.0);
    case FDivergence::kJsDivergence:
      return at::log_sigmoid(log_ratio).add(std::numbers::ln2);
    case FDivergence::kAlphaDivergence:
      break;
  }
  const double power = options_.f_alpha.value_or(0.5) - 1.0;
  if (std::abs(power) < 1e-6) return log_ratio;
  return at::exp(log_ratio.mul(power).clamp_max(kLargestAlpha)).sub(1.0).mul(1.0 / power);
}

at::Tensor PreferenceLoss::per_pair(const PairLogProbs& pairs) const {
  const PairLogProbs seen = normalised(pairs);
  at::Tensor sum;
  for (const PreferenceTerm& each : options_.terms) {
    if (each.type == Type::kSft) continue;
    const at::Tensor part = term(each.type, seen).mul(each.weight);
    sum = sum.defined() ? sum.add(part) : part;
  }
  return sum;
}

at::Tensor PreferenceLoss::term(PreferenceLossType type, const PairLogProbs& pairs) const {
  const LogRatios all(pairs);
  const double beta = options_.beta;
  const double smoothing = options_.label_smoothing;
  const auto log_sigmoid = [](const at::Tensor& x) { return at::log_sigmoid(x); };
  const auto difference = [&] {
    return is_legacy() ? legacy_difference(all, options_) : score(all.c).sub(score(all.r));
  };
  const auto difference_per_token = [&] {
    return per_token(score(all.c), pairs.chosen_tokens).sub(per_token(score(all.r), pairs.rejected_tokens));
  };
  const auto logits = [&] { return Logits{difference(), beta, pairs.margins}; };
  switch (type) {
    case Type::kSigmoid:
      return smoothed(logits()(), is_legacy() ? smoothing : 0.0);
    case Type::kHinge:
      return at::relu(logits()().neg().add(1.0));
    case Type::kIpo:  // TRL 0.24: normalised() has divided already
      return squared((is_legacy() ? difference() : difference_per_token()).sub(0.5 / beta));
    case Type::kExoPair:
      return exo(logits(), smoothing > 0 ? smoothing : 1e-3);
    case Type::kRobust:
      return robust(logits(), smoothing);
    case Type::kDiscopop:
      return discopop(logits()(), options_.discopop_tau);
    case Type::kSigmoidNorm:
      return log_sigmoid(Logits{difference_per_token(), beta, pairs.margins}()).neg();
    case Type::kNcaPair:
      return log_sigmoid(all.c.mul(beta))
          .neg()
          .sub(log_sigmoid(all.c.mul(-beta)).add(log_sigmoid(all.r.mul(-beta))), 0.5);
    case Type::kBcoPair: {
      const double mean = is_legacy() ? pairs.running_mean : 0.0;
      return log_sigmoid(all.c.mul(beta).sub(mean)).add(log_sigmoid(all.r.mul(-beta).add(mean))).neg();
    }
    case Type::kSppoHard:
      return squared(all.c.sub(0.5 / beta)).add(squared(all.r.add(0.5 / beta)));
    case Type::kAot:
      return smoothed(
          sorted(all.policy_c.sub(all.policy_r)).sub(sorted(all.reference_c.sub(all.reference_r))).mul(beta),
          smoothing);
    case Type::kAotUnpaired:
      return smoothed(sorted(all.c).sub(sorted(all.r)).mul(beta), smoothing);
    case Type::kApoZero:
      return at::sigmoid(all.c.mul(-beta)).add(at::sigmoid(all.r.mul(beta)));
    case Type::kApoDown:
      return at::sigmoid(all.c.mul(beta)).add(at::sigmoid(all.c.sub(all.r).mul(-beta)));
    case Type::kSft:
      break;
  }
  throw Error("the sft loss has no value for a pair");
}

}  // namespace apus::train
