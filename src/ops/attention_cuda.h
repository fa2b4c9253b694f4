#pragma once

#include "apus/ops/attention.h"
#include "apus/ops/device_rows.h"

namespace apus::ops::twin {

/// Attention as ATen's scaled_dot_product_attention, a sequence after the other or all padded ones at once:
/// what the CPU runs, and a GPU for what its kernels do not take. Operands are checked by the caller.
at::Tensor attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                     const AttentionRows& rows);

}  // namespace apus::ops::twin

/// Attention on a GPU; without CUDA these throw NotSupported.
namespace apus::ops::cuda {

/// As ops::attention, the operands checked.
at::Tensor attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                     const AttentionRows& rows, RowRoom out_room);

std::shared_ptr<AttentionPlans> make_attention_plans();

}  // namespace apus::ops::cuda
