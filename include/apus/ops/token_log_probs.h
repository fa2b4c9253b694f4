#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"

namespace apus::memory {
class GradSink;
}

namespace apus::ops {

/// How token_log_probs works through its rows.
struct APUS_API TokenLogProbsOptions {
  /// Rows whose logits exist at a time, at most (a GPU deals rows evenly to chunks); 0 = as chunk_bytes
  /// allow. Changes memory and speed, not the result beyond rounding.
  int64_t chunk_tokens = 0;
  /// Read where chunk_tokens is 0: bytes of a chunk's logits, fp32 on the CPU, in the operands' dtype on a
  /// GPU (where rows are then dealt evenly to chunks). 0 = 256 MiB on the CPU, 2.5 GiB on a GPU.
  int64_t chunk_bytes = 0;
  /// bool [M] on hidden's device, written: whether the target has the largest logit of its row. Among equal
  /// largest ones (bf16 logits often are) the smallest index counts, so that a row has one of them, as
  /// torch's argmax does. It is read off the same logits. Undefined: not wanted.
  at::Tensor is_argmax_M = {};
  /// fp32 [M] on hidden's device: d loss / d logp of each row, where the caller knows it before there is a
  /// loss (SFT: minus weight over divisor). A trainable weight's gradient is then made in the forward pass,
  /// from the logits that are there anyway. Backward must be fed these very numbers, up to 1e-4 of each; what
  /// differs throws on the CPU and gives NaN rows on a GPU. Undefined: not known. Not read if the weight is
  /// frozen.
  at::Tensor row_scale_M = {};
  /// Takes a trainable weight's gradient where the weight is a parameter of it; the tape then gets none. It
  /// outlives backward. Null: the tape gets all gradients.
  memory::GradSink* gradients = nullptr;
};

/// Bytes of logits that the head holds at a time on a GPU of so much memory, where nobody says otherwise: 2.5
/// GiB, 8k rows of a large vocabulary, with which its products run fastest, but at most a thirty-second part.
APUS_API int64_t gpu_logit_bytes(int64_t card_bytes);

/// Log-probability of each row's target under softmax of the vocabulary projection, without whole logits.
/// Maths:       logp[m] = z[m, target[m]] - logsumexp_v z[m, v], z = hidden W^T.
///              d logp[m] / d hidden[m] = W[target[m]] - sum_v softmax(z[m])[v] W[v].
/// Shapes:      hidden [M, D], weight [V, D], targets int64 [M] -> fp32 [M]. M = 0 is allowed.
/// Dtypes:      bf16 | fp32; products in it, log-softmax and the sum of weight gradients in fp32; gradients
///              as the operand they belong to.
/// Memory:      CPU: 2 to 3 fp32 chunks [chunk, V]; GPU: one, in the operands' dtype. If hidden needs a
///              gradient: its unscaled rows [M, D] in its dtype, made in the forward pass and scaled row by
///              row in backward. If the weight needs one and row_scale is not known: hidden, the weight and
///              fp32 [M] are kept and backward computes the chunks again; if it is known nothing more is
///              kept. The sum over rows is one fp32 [V, D], on a GPU the sink's own buffer. Under no-grad
///              nothing is kept.
/// Determinism: run-to-run for equal chunks.
/// Throws:      ShapeError if shapes or dtypes (of the options' tensors, too) do not fit or (on CPU) a target
///              lies outside [0, V); on a GPU such a row gives NaN. ConfigError for negative chunks, and (on
///              CPU) from backward if it is fed another gradient than row_scale. NotSupported from backward
///              when it is itself to be differentiated.
APUS_API at::Tensor token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                                    const at::Tensor& targets_M, const TokenLogProbsOptions& options = {});

}  // namespace apus::ops
