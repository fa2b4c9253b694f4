#include "apus/train/dpo_objective.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <utility>

#include "apus/base/error.h"

namespace apus::train {
namespace {

at::Tensor sum_of(const at::Tensor& values) { return values.to(at::kDouble).sum(); }

}  // namespace

DpoObjective::DpoObjective(DpoOptions options)
    : options_(std::move(options)),
      metrics_{{"rewards/chosen"},  {"rewards/rejected"}, {"rewards/accuracies"},
               {"rewards/margins"}, {"logps/chosen"},     {"logps/rejected"}} {
  APUS_CHECK(options_.beta > 0 && std::isfinite(options_.beta), ConfigError,
             "beta must be a positive number, got ", options_.beta, "; change --beta");
  APUS_CHECK(!options_.policy_adapters.empty() || options_.reference_model, ConfigError,
             "DPO with the base as its own reference needs an adapter to train; name one in policy_adapters, or give a "
             "reference_model");
}

std::vector<int64_t> DpoObjective::weights(const data::Batch& batch) const {
  if (options_.reduction == DpoReduction::kMicrobatch) return {batch.is_empty() ? 0 : 1};
  return {batch.pairs};
}

ObjectiveResult DpoObjective::run(parallel::ShardedModel& model, const data::Batch& batch) const {
  const int64_t pairs = batch.layout->batch() / 2;
  at::Tensor reference;
  {
    at::NoGradGuard no_grad;
    parallel::ShardedModel& frozen = options_.reference_model ? *options_.reference_model : model;
    reference = sequence_log_probs(frozen, batch, options_.reference_adapters);
  }
  const at::Tensor policy = sequence_log_probs(model, batch, options_.policy_adapters);
  if (batch.is_empty()) return {{policy.sum().mul(0.0)}, {}};

  const at::Tensor rewards = policy.sub(reference).mul(options_.beta);
  const at::Tensor chosen = rewards.slice(0, 0, pairs);
  const at::Tensor rejected = rewards.slice(0, pairs);
  const at::Tensor margins = chosen.sub(rejected);
  const double share = options_.reduction == DpoReduction::kMicrobatch ? 1.0 / static_cast<double>(pairs) : 1.0;
  ObjectiveResult result{{at::log_sigmoid(margins).sum().mul(-share)}, {}};

  at::NoGradGuard no_grad;
  const at::Tensor accuracies = chosen.gt(rejected);
  result.metric_sums =
      at::stack({sum_of(chosen), sum_of(rejected), sum_of(accuracies), sum_of(margins),
                 sum_of(policy.slice(0, 0, pairs)), sum_of(policy.slice(0, pairs))})
          .mul(share);
  return result;
}

}  // namespace apus::train
