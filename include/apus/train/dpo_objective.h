#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/train/objective.h"
#include "apus/train/preference_loss.h"
#include "apus/train/reference.h"

namespace apus::train {

/// How pairs become the step's loss.
enum class DpoReduction {
  kPairs,       ///< mean over all pairs of the step; sft and rpo_alpha: over all chosen tokens of the step
  kMicrobatch,  ///< mean over micro-batches of their means, as TRL does
};

/// Settings of DPO.
struct APUS_API DpoOptions {
  /// Beta, which losses and what shapes them.
  PreferenceLossOptions loss = {};
  DpoReduction reduction = DpoReduction::kPairs;
  /// What is trained; empty: the model's own parameters.
  std::vector<std::string> policy_adapters = {"default"};
  /// What the policy is compared with.
  Reference reference = {};
  /// LD-DPO, from 0 to 1: what tokens beyond the length of the pair's shorter answer count.
  std::optional<double> ld_alpha = {};
  /// Seed of the policy's adapter dropout in training (`--disable_dropout false`); absent: nothing is
  /// dropped.
  std::optional<uint64_t> dropout_seed = {};
};

/// The running mean of rewards that bco_pair of TRL 0.24 subtracts; equal on all ranks.
///
/// Under kPairs it is the mean over all pairs of the steps before: known before a step starts, so the loss
/// does not depend on how its rows are split. Under kMicrobatch it is TRL's: of the means of all
/// micro-batches so far, the running one of every rank included. Evaluations read it and leave it as it is.
class APUS_API RewardMean final : public ObjectiveMemory {
 public:
  /// Whether finish_step adds the step's rewards (kPairs), or add() does (kMicrobatch).
  explicit RewardMean(DpoReduction reduction) : reduction_(reduction) {}

  /// Reads the step's means of rewards/chosen and rewards/rejected.
  void finish_step(const std::vector<int64_t>& divisors, const std::vector<double>& metrics) override;
  std::vector<double> save() const override { return {mean_, count_}; }
  void load(const std::vector<double>& saved) override;

  /// Adds `count` values with this mean.
  void add(double mean, double count);
  double mean() const { return mean_; }

 private:
  DpoReduction reduction_;
  double mean_ = 0.0;
  double count_ = 0.0;
};

/// Direct preference optimisation and its relatives; the reference without tape.
///
/// Maths:   log p sums over an answer's tokens (weighed with ld_alpha); the loss is the mean over pairs of
///          PreferenceLoss::per_pair, plus nll_weight times the mean of -log p over chosen tokens.
/// Metrics: rewards/chosen, rewards/rejected, rewards/accuracies, rewards/margins, logps/chosen,
/// logps/rejected,
///          and nll_loss with sft or rpo_alpha.
/// Collectives: the passes' own; bco_pair of TRL 0.24 under kMicrobatch: one all_reduce of 16 bytes a
/// micro-batch. Memory:  two forwards' activations do not exist at a time: the reference pass keeps nothing.
/// Source:  Rafailov et al. 2023, equation 7; names and conventions of TRL 1.16; see docs/design/dpo.md.
class APUS_API DpoObjective final : public Objective {
 public:
  /// Throws ConfigError as PreferenceLoss; for ld_alpha outside [0, 1] or with TRL 0.24, whose code counts
  /// its tokens from the start of the prompt.
  explicit DpoObjective(DpoOptions options);

  std::vector<int64_t> weights(const data::Batch& batch) const override;
  ObjectiveResult run(parallel::ShardedModel& model, const data::Batch& batch) const override;
  const std::vector<ObjectiveMetric>& metrics() const override { return metrics_; }
  ObjectiveMemory* memory() const override { return reward_mean_.get(); }
  const DpoOptions& options() const { return options_; }
  const PreferenceLoss& loss() const { return loss_; }

 private:
  /// What a pair and a chosen token count in the sums: 1, or their share of the micro-batch's mean.
  struct Shares {
    double pair = 1.0;
    double token = 1.0;
  };

  Shares shares_of(const data::Batch& batch) const;
  std::vector<at::Tensor> loss_sums(const PairLogProbs& pairs, const at::Tensor& nll,
                                    const Shares& share) const;
  at::Tensor metric_sums(const PairLogProbs& pairs, const at::Tensor& nll, const Shares& share) const;
  double running_mean(parallel::ShardedModel& model, const PairLogProbs& pairs,
                      const data::Batch& batch) const;

  DpoOptions options_;
  PreferenceLoss loss_;
  std::vector<ObjectiveMetric> metrics_;
  std::shared_ptr<RewardMean> reward_mean_;
};

}  // namespace apus::train
