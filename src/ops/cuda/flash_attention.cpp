#include "ops/cuda/flash_attention.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace apus::ops::cuda {
namespace {

double scale_of(const at::Tensor& q_TNH) {
  return 1.0 / std::sqrt(static_cast<double>(q_TNH.size(2)));
}

/// A maximum of 1 would turn on a decoding path that expects exactly one row of each sequence.
int64_t max_rows_of_a_sequence(const DeviceRows& rows) {
  return std::max<int64_t>(rows.max_extent(), 2);
}

}  // namespace

FlashResult flash_attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                            const DeviceRows& rows) {
  const at::Tensor borders = rows.cu_seqlens();
  const int64_t longest = max_rows_of_a_sequence(rows);
  auto [out, stats, random_state, unused, debug] = at::_flash_attention_forward(
      q_TNH, k_TKH, v_TKH, borders, borders, longest, longest, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false, scale_of(q_TNH));
  return {.out_TNH = std::move(out),
          .stats_NT = std::move(stats),
          .random_state = std::move(random_state),
          .unused = std::move(unused)};
}

FlashGradients flash_attention_backward(const at::Tensor& dout_TNH, const at::Tensor& q_TNH,
                                        const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                                        const FlashResult& result, const DeviceRows& rows) {
  const at::Tensor borders = rows.cu_seqlens();
  const int64_t longest = max_rows_of_a_sequence(rows);
  auto [dq, dk, dv] = at::_flash_attention_backward(
      dout_TNH, q_TNH, k_TKH, v_TKH, result.out_TNH, result.stats_NT, borders, borders, longest, longest,
      /*dropout_p=*/0.0, /*is_causal=*/true, result.random_state, result.unused, scale_of(q_TNH));
  return {.q_TNH = std::move(dq), .k_TKH = std::move(dk), .v_TKH = std::move(dv)};
}

}  // namespace apus::ops::cuda
