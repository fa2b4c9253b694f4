#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/batch.h"
#include "apus/parallel/sharded_model.h"

namespace apus::train {

/// How one pass over a micro-batch of answers runs.
struct APUS_API AnswerPass {
  /// Active ones; empty = the base alone.
  std::vector<std::string> adapters = {};
  /// fp32 [M] multiplies each supervised token's log-probability; undefined: 1.
  at::Tensor token_weights_M = {};
  /// Seed of the adapters' dropout, drawn by Batch::epoch and places; absent: nothing is dropped.
  std::optional<uint64_t> dropout_seed = {};
};

/// Log-probabilities of a micro-batch's answers: fp32 [2P], by target_sequences_M.
struct APUS_API AnswerLogProbs {
  /// Sums of the weighed tokens.
  at::Tensor weighted;
  /// Sums of all tokens; the same tensor where nothing is weighed.
  at::Tensor plain;
};

/// Runs the model once over all answers.
/// Collectives: the model's own.
APUS_API AnswerLogProbs answer_log_probs(parallel::ShardedModel& model, const data::Batch& batch,
                                         const AnswerPass& pass);

/// Supervised tokens of each answer: fp32 [2P] on the CPU.
APUS_API at::Tensor answer_tokens(const data::Batch& batch);

/// Weights of LD-DPO: a token beyond the number of tokens that the pair's shorter answer has counts ld_alpha,
/// others 1.
/// Shapes:  fp32 [M] on the CPU, in the order of target_rows_M.
/// Source:  Liu et al. 2024 (LD-DPO), equation 10; TRL 1.16's ld_alpha, which weighs policy and reference
/// alike.
APUS_API at::Tensor length_weights(const data::Batch& batch, double ld_alpha);

}  // namespace apus::train
