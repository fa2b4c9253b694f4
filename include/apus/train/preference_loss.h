#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus::train {

/// Whose formulas and names (`--loss_variant`).
enum class LossVariant {
  kCurrent,  ///< TRL 1.16
  kTrl024,   ///< TRL 0.24: smoothed sigmoid, running mean in bco_pair, the name aot_pair
};

/// The pair losses, by TRL 1.16's names; docs/design/dpo.md lists their formulas.
enum class PreferenceLossType {
  kSigmoid,
  kHinge,
  kIpo,
  kExoPair,
  kNcaPair,
  kRobust,
  kBcoPair,
  kSppoHard,
  kAot,
  kAotUnpaired,
  kApoZero,
  kApoDown,
  kDiscopop,
  kSigmoidNorm,
  kSft,
};

/// What a log-ratio becomes before two of them are compared (`--f_divergence_type`).
enum class FDivergence { kReverseKl, kForwardKl, kJsDivergence, kAlphaDivergence };

/// One loss of a weighted sum.
struct APUS_API PreferenceTerm {
  PreferenceLossType type = PreferenceLossType::kSigmoid;
  double weight = 1.0;
};

/// Which loss, with everything that shapes it.
struct APUS_API PreferenceLossOptions {
  /// Added up, at least one.
  std::vector<PreferenceTerm> terms = {{}};
  LossVariant variant = LossVariant::kCurrent;
  double beta = 0.1;
  /// Read by exo_pair, robust, aot and aot_unpaired, and by sigmoid in TRL 0.24 alone.
  double label_smoothing = 0.0;
  FDivergence f_divergence = FDivergence::kReverseKl;
  /// Of the alpha-divergence; absent: TRL's default, 0.5 (1 in TRL 0.24, where it has another meaning).
  std::optional<double> f_alpha = {};
  /// Temperature of discopop.
  double discopop_tau = 0.05;
  /// Adds this times the mean of -log p over the chosen answers' tokens, as the term sft does.
  std::optional<double> rpo_alpha = {};
};

/// "current" or "trl0.24". Throws ConfigError naming --loss_variant.
APUS_API LossVariant parse_loss_variant(std::string_view name);

/// The name of a divergence as TRL has it. Throws ConfigError naming --f_divergence_type.
APUS_API FDivergence parse_f_divergence(std::string_view name);

/// `--loss_type a b` with `--loss_weights 1 0.5` (none: 1 each); names are those of the variant.
/// Throws: ConfigError for an unknown name (naming the nearest, or the other variant's), the same name twice,
///         another number of weights, or one that is not finite.
APUS_API std::vector<PreferenceTerm> parse_preference_terms(const std::vector<std::string>& names,
                                                            const std::vector<double>& weights,
                                                            LossVariant variant);

/// The name of a loss in a variant.
APUS_API std::string loss_name(PreferenceLossType type, LossVariant variant);

/// What a micro-batch's pairs are compared by: vectors [P] on one device.
struct APUS_API PairLogProbs {
  /// Sums over the answers' tokens, under the policy (with tape) and under the reference.
  at::Tensor policy_chosen, policy_rejected, reference_chosen, reference_rejected;
  /// Tokens of the answers; read by ipo and sigmoid_norm alone.
  at::Tensor chosen_tokens, rejected_tokens;
  /// Undefined: 0. Subtracted where a loss looks at beta times the difference.
  at::Tensor margins = {};
  /// bco_pair of TRL 0.24: of the rewards, this micro-batch's included or not as the caller wants.
  double running_mean = 0.0;
};

/// Rewards of one micro-batch, detached: fp64 [P].
struct APUS_API PairRewards {
  at::Tensor chosen, rejected;
};

/// The losses of direct preference optimisation and its relatives, for all pairs of a micro-batch.
///
/// Maths:   with c, r = policy - reference of the chosen and the rejected answer, put through the
/// f-divergence,
///          d = c - r: sigmoid is -log sigmoid(beta d - margin); the others in docs/design/dpo.md.
/// Dtypes:  fp64 inputs are computed in fp64, others in fp32 and in TRL's order, so that differences which
///          nearly cancel round as they do there; out = that dtype, gradients in the inputs'. Exponents are
///          bounded, so that extreme log-probabilities give no NaN where the value is finite.
/// Source:  TRL 1.16.0 and 0.24.0, DPOTrainer; margins: Amini et al. 2024 (ODPO), equation 7.
class APUS_API PreferenceLoss final {
 public:
  /// Throws: ConfigError where TRL refuses, and where a formula has no value: beta, discopop_tau not
  /// positive,
  ///         label_smoothing outside [0, 1), robust at 0.5 and above, exo_pair at 0 (TRL 0.24: 1e-3 then), a
  ///         divergence with a loss that has none, no terms.
  explicit PreferenceLoss(PreferenceLossOptions options);

  /// [P] the weighted sum of all terms but sft and rpo_alpha; undefined if there is none but those.
  at::Tensor per_pair(const PairLogProbs& pairs) const;
  /// What the mean of -log p over chosen tokens counts in the loss; 0: it has no part in it.
  double nll_weight() const;
  /// beta x (policy - reference); TRL 0.24: times the sum of the weights.
  PairRewards rewards(const PairLogProbs& pairs) const;
  /// Log-probabilities as the losses see them: TRL 0.24 divides them by the lengths where ipo is among the
  /// losses, for all of these.
  PairLogProbs normalised(PairLogProbs pairs) const;

  /// aot, aot_unpaired: the loss depends on which pairs are together in a micro-batch.
  bool sorts() const;
  /// Whether the running mean of the rewards is read.
  bool has_running_mean() const;
  /// Names of the losses that have no use for margins; empty: margins have an effect everywhere.
  std::vector<std::string> losses_without_margin() const;
  /// What rows with a `margin` bring about, one sentence.
  std::string margin_note() const;
  /// One sentence for each setting that no loss reads, e.g. label_smoothing with TRL 1.16's sigmoid.
  std::vector<std::string> notes() const;
  const PreferenceLossOptions& options() const { return options_; }

 private:
  at::Tensor term(PreferenceLossType type, const PairLogProbs& pairs) const;
  at::Tensor score(const at::Tensor& log_ratio) const;
  bool has(PreferenceLossType type) const;
  bool is_legacy() const { return options_.variant == LossVariant::kTrl024; }

  PreferenceLossOptions options_;
};

}  // namespace apus::train
