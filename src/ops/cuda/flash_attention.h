#pragma once

#include <ATen/core/Tensor.h>

#include "apus/ops/device_rows.h"

namespace apus::ops::cuda {

/// What FlashAttention-2's forward pass leaves for its backward pass.
struct FlashResult {
  at::Tensor out_TNH;
  at::Tensor stats_NT;  ///< fp32, log of the sum of exp
  at::Tensor random_state;
  at::Tensor unused;
};

/// Gradients of q, k and v.
struct FlashGradients {
  at::Tensor q_TNH;
  at::Tensor k_TKH;
  at::Tensor v_TKH;
};

/// libtorch's FlashAttention-2 over all sequences in one call: bf16 or fp16, head sizes up to 256 that are
/// multiples of 8, rows strided as they come. Padded rows are computed along with the rest.
FlashResult flash_attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                            const DeviceRows& rows);

FlashGradients flash_attention_backward(const at::Tensor& dout_TNH, const at::Tensor& q_TNH,
                                        const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                                        const FlashResult& result, const DeviceRows& rows);

}  // namespace apus::ops::cuda
