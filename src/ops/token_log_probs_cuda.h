#pragma once

#include <ATen/core/Tensor.h>

#include "apus/ops/token_log_probs.h"

namespace apus::ops::cuda {

/// Whether the kernels take these operands: on a GPU, bf16 or fp32. Others go ATen's way.
inline bool takes_log_probs(const at::Tensor& hidden_MD, const at::Tensor& weight_VD) {
  return hidden_MD.is_cuda() && weight_VD.is_cuda() &&
         (hidden_MD.scalar_type() == at::kBFloat16 || hidden_MD.scalar_type() == at::kFloat);
}

/// ops::token_log_probs for operands that takes_log_probs, checked already.
at::Tensor token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                           const at::Tensor& targets_M, const TokenLogProbsOptions& options);

}  // namespace apus::ops::cuda
