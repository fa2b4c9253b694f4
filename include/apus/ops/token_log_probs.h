#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"

namespace apus::ops {

/// How token_log_probs works through its rows.
struct APUS_API TokenLogProbsOptions {
  /// Rows whose logits exist at a time; 0 = as many as keep a chunk's fp32 logits within 256 MiB. Changes
  /// memory and speed, not the result beyond rounding.
  int64_t chunk_tokens = 0;
  /// bool [M] on hidden's device, written: whether the target has the largest logit of its row. Among equal largest
  /// ones (bf16 logits often are) the smallest index counts, so that a row has one of them, as torch's argmax does.
  /// It is read off the same logits. Undefined: not wanted.
  at::Tensor is_argmax_M = {};
};

/// Log-probability of each row's target under softmax of the vocabulary projection, without whole logits.
/// Maths:       logp[m] = z[m, target[m]] - logsumexp_v z[m, v], z = hidden W^T.
///              d logp[m] / d hidden[m] = W[target[m]] - sum_v softmax(z[m])[v] W[v].
/// Shapes:      hidden [M, D], weight [V, D], targets int64 [M] -> fp32 [M]. M = 0 is allowed.
/// Dtypes:      bf16 | fp32; products in it, log-softmax and the sum of weight gradients in fp32; gradients
///              as the operand they belong to.
/// Memory:      2 to 3 fp32 chunks [chunk, V]. If hidden needs a gradient: its unscaled rows [M, D] in its
///              dtype, made in the forward pass and scaled row by row in backward. If the weight needs one:
///              hidden, the weight and fp32 [M] are kept, backward computes the chunks again and holds one
///              fp32 [V, D]. Under no-grad nothing is kept.
/// Determinism: run-to-run for equal chunks.
/// Throws:      ShapeError if shapes or dtypes (of is_argmax_M, too) do not fit or (on CPU) a target lies
///              outside [0, V);
///              NotSupported from backward when it is itself to be differentiated.
APUS_API at::Tensor token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                                    const at::Tensor& targets_M, const TokenLogProbsOptions& options = {});

}  // namespace apus::ops
