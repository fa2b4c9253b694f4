#include "apus/train/dpo_objective.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apus/base/error.h"
#include "apus/memory/staged_copy.h"
#include "apus/train/answer_log_probs.h"
#include "train/on_device.h"

namespace apus::train {
namespace {

/// The halves of a micro-batch side by side.
PairLogProbs pairs_of(const data::Batch& batch, const at::Tensor& policy, const at::Tensor& reference) {
  const int64_t count = std::max<int64_t>(batch.pairs, 1);
  const at::Tensor tokens = memory::staged_to(answer_tokens(batch), policy.device(), at::kFloat);
  return {.policy_chosen = policy.slice(0, 0, count),
          .policy_rejected = policy.slice(0, count),
          .reference_chosen = reference.slice(0, 0, count),
          .reference_rejected = reference.slice(0, count),
          .chosen_tokens = tokens.slice(0, 0, count),
          .rejected_tokens = tokens.slice(0, count),
          .margins = batch.pair_margins_P};
}

/// Supervised tokens of the chosen answers.
int64_t chosen_tokens(const data::Batch& batch) {
  return batch.on_host().target_sequences_M.lt(batch.pairs).sum().item<int64_t>();
}

at::Tensor sum_of(const at::Tensor& values) {
  return values.detach().to(at::kDouble).sum();
}

}  // namespace

void RewardMean::add(double mean, double count) {
  if (count <= 0) return;
  count_ += count;
  mean_ += (mean - mean_) * count / count_;
}

void RewardMean::finish_step(const std::vector<int64_t>& divisors, const std::vector<double>& metrics) {
  if (reduction_ == DpoReduction::kMicrobatch) return;
  add((metrics.at(0) + metrics.at(1)) / 2, static_cast<double>(divisors.at(0)));
}

void RewardMean::load(const std::vector<double>& saved) {
  APUS_CHECK(saved.size() == 2 && std::isfinite(saved[0]) && saved[1] >= 0, ConfigError,
             "the saved running mean of rewards has ", saved.size(), " numbers, expected mean and count");
  mean_ = saved[0];
  count_ = saved[1];
}

DpoObjective::DpoObjective(DpoOptions options)
    : options_(std::move(options)), loss_(options_.loss), metrics_{{"rewards/chosen"},
                                                                   {"rewards/rejected"},
                                                                   {"rewards/accuracies"},
                                                                   {"rewards/margins"},
                                                                   {"logps/chosen"},
                                                                   {"logps/rejected"}} {
  if (loss_.nll_weight() != 0) {
    metrics_.push_back({"nll_loss", options_.reduction == DpoReduction::kPairs ? size_t{1} : size_t{0}});
  }
  if (loss_.has_running_mean()) reward_mean_ = std::make_shared<RewardMean>(options_.reduction);
  APUS_CHECK(
      !options_.policy_adapters.empty() || options_.reference.kind != ReferenceKind::kTrainedModel ||
          options_.reference.is_precomputed,
      ConfigError,
      "DPO with the base as its own reference needs an adapter to train; name one in policy_adapters, give a "
      "second model (--ref_model), or precompute the reference");
  if (!options_.ld_alpha) return;
  APUS_CHECK(*options_.ld_alpha >= 0 && *options_.ld_alpha <= 1, ConfigError, "ld_alpha is ",
             *options_.ld_alpha, ", expected a number from 0 to 1; change --ld_alpha");
  APUS_CHECK(
      options_.loss.variant == LossVariant::kCurrent, ConfigError,
      "ld_alpha is of --loss_variant current; TRL 0.24 counts its tokens from the start of the prompt");
}

std::vector<int64_t> DpoObjective::weights(const data::Batch& batch) const {
  if (options_.reduction == DpoReduction::kMicrobatch) return {batch.is_empty() ? 0 : 1};
  if (loss_.nll_weight() == 0) return {batch.pairs};
  if (batch.is_empty()) return {0, 0};
  return {batch.pairs, chosen_tokens(batch)};
}

double DpoObjective::running_mean(parallel::ShardedModel& model, const PairLogProbs& pairs,
                                  const data::Batch& batch) const {
  if (!reward_mean_) return 0.0;
  if (options_.reduction == DpoReduction::kPairs || !at::GradMode::is_enabled()) return reward_mean_->mean();
  // TRL 0.24: the mean of the ranks' means, each rank counting once.
  const at::Tensor sums = at::empty({2}, at::kDouble).zero_();
  if (!batch.is_empty()) {
    const PairRewards rewards = loss_.rewards(pairs);
    sums.data_ptr<double>()[0] = rewards.chosen.add(rewards.rejected).mean().item<double>() / 2;
    sums.data_ptr<double>()[1] = 1.0;
  }
  model.dp().all_reduce(sums)->wait();
  const double ranks = sums.const_data_ptr<double>()[1];
  reward_mean_->add(sums.const_data_ptr<double>()[0] / std::max(ranks, 1.0), ranks);
  return reward_mean_->mean();
}

ObjectiveResult DpoObjective::run(parallel::ShardedModel& model, const data::Batch& given) const {
  const data::Batch batch = on_device(model, given);
  const at::Tensor token_weights =
      options_.ld_alpha
          ? memory::staged_to(length_weights(batch, *options_.ld_alpha), device_of(model), at::kFloat)
          : at::Tensor();
  const at::Tensor reference = reference_log_probs(options_.reference, model, batch, token_weights);
  AnswerPass pass{.adapters = options_.policy_adapters, .token_weights_M = token_weights};
  if (at::GradMode::is_enabled()) pass.dropout_seed = options_.dropout_seed;
  const AnswerLogProbs policy = answer_log_probs(model, batch, pass);
  PairLogProbs pairs = pairs_of(batch, policy.weighted, reference.to(policy.weighted.device()));
  pairs.running_mean = running_mean(model, pairs, batch);
  if (batch.is_empty()) return {{policy.plain.sum().mul(0.0)}, {}};
  const at::Tensor nll = policy.plain.slice(0, 0, batch.pairs).sum().neg();
  const Shares share = shares_of(batch);
  return {loss_sums(pairs, nll, share), metric_sums(pairs, nll, share)};
}

DpoObjective::Shares DpoObjective::shares_of(const data::Batch& batch) const {
  if (options_.reduction == DpoReduction::kPairs) return {};
  const auto tokens = static_cast<double>(std::max<int64_t>(chosen_tokens(batch), 1));
  return {1.0 / static_cast<double>(batch.pairs), 1.0 / tokens};
}

std::vector<at::Tensor> DpoObjective::loss_sums(const PairLogProbs& pairs, const at::Tensor& nll,
                                                const Shares& share) const {
  at::Tensor losses = loss_.per_pair(pairs);
  if (losses.defined()) losses = losses.to(at::kDouble).sum().mul(share.pair).to(at::kFloat);
  if (loss_.nll_weight() == 0) return {losses};
  const at::Tensor weighed = nll.mul(loss_.nll_weight() * share.token);
  if (options_.reduction == DpoReduction::kPairs) return {losses, weighed};
  return {losses.defined() ? losses.add(weighed) : weighed};
}

at::Tensor DpoObjective::metric_sums(const PairLogProbs& pairs, const at::Tensor& nll,
                                     const Shares& share) const {
  const at::NoGradGuard no_grad;
  const PairRewards rewards = loss_.rewards(pairs);
  const PairLogProbs shown = loss_.normalised(pairs);
  std::vector<at::Tensor> sums;
  for (const at::Tensor& values :
       {rewards.chosen, rewards.rejected, rewards.chosen.gt(rewards.rejected),
        rewards.chosen.sub(rewards.rejected), shown.policy_chosen, shown.policy_rejected}) {
    sums.push_back(sum_of(values).mul(share.pair));
  }
  if (loss_.nll_weight() != 0) sums.push_back(sum_of(nll).mul(share.token));
  return at::stack(sums);
}

}  // namespace apus::train
