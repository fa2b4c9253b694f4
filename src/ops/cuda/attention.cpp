// Attention over all sequences of a micro-batch in one kernel, forward and backward.
//
// Read: q, k, v once in forward (k and v again from L2 for each block of queries), q, k, v, out and dout in
// backward. Written: out and one float a row and head; dq, dk, dv. Both are bound by the tensor cores, at 4
// and 10 times T/2 x length x N H operations. cuDNN does it 1.8 times as fast as FlashAttention-2 on an H100,
// but wants an execution plan, head sizes 64 or 128 here, and dense rows; what it does not take goes to
// FlashAttention-2, and what that does not take (fp32, odd head sizes) to the composition of ATen operations.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <utility>

#include "apus/base/error.h"
#include "ops/attention_cuda.h"
#include "ops/cuda/attention_plans.h"
#include "ops/cuda/flash_attention.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A deterministic cuDNN backward that would need more is left to FlashAttention-2.
constexpr int64_t kMaxScoreBytes = int64_t{4} << 30;

/// Everything about a call but its tensors; chosen in forward and kept for backward.
struct Call final : torch::CustomClassHolder {
  std::shared_ptr<const DeviceRows> rows;
  RowRoom room;
  bool tape = false;
  bool with_plan = false;
  PlanShape forward;
  PlanShape backward;
};

/// Rows that the kernels can read with 16-byte accesses, dense.
at::Tensor dense(const at::Tensor& x) {
  const at::Tensor rows = x.contiguous();
  const bool aligned = reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % 16 == 0;
  return aligned ? rows : rows.clone();
}

/// The result's memory; cuDNN leaves rows outside any sequence alone, so these are cleared.
at::Tensor empty_out(const at::Tensor& q_TNH, const Call& call) {
  const int64_t heads = q_TNH.size(1), head_dim = q_TNH.size(2);
  // Neither a view nor one version with its room: who reads next may write there while this is saved.
  at::Tensor out_TNH = empty_with_room(q_TNH.size(0), heads * head_dim, call.room, q_TNH.options())
                           .unflatten(1, {heads, head_dim})
                           .variable_data();
  if (call.rows->has_padding()) out_TNH.zero_();
  return out_TNH;
}

at::Tensor empty_gradient(const at::Tensor& like, const DeviceRows& rows) {
  return rows.has_padding() ? at::zeros_like(like) : at::empty_like(like);
}

/// The pointers that forward and backward share; offsets are kept alive by the rows.
PlanBuffers buffers_of(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                       const at::Tensor& out_TNH, const at::Tensor& stats_TN, const Call& call) {
  const int64_t heads = q_TNH.size(1), head_dim = q_TNH.size(2);
  const auto offsets = [&](int64_t row_width) { return call.rows->offsets(row_width).const_data_ptr(); };
  return {.q = q_TNH.const_data_ptr(),
          .k = k_TKH.const_data_ptr(),
          .v = v_TKH.const_data_ptr(),
          .out = out_TNH.mutable_data_ptr(),
          .stats = stats_TN.mutable_data_ptr(),
          .lengths = call.rows->lengths().const_data_ptr(),
          .q_offsets = offsets(heads * head_dim),
          .kv_offsets = offsets(k_TKH.size(1) * head_dim),
          .out_offsets = offsets(call.forward.out_stride),
          .stats_offsets = offsets(heads)};
}

AttentionPlans& plans_of(const Call& call) {
  return *call.rows->plans();
}

variable_list planned_forward(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                              const Call& call) {
  const at::Tensor q = dense(q_TNH), k = dense(k_TKH), v = dense(v_TKH);
  const at::Tensor out_TNH = empty_out(q, call);
  const at::Tensor stats_TN = at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
  plans_of(call).run(call.forward, buffers_of(q, k, v, out_TNH, stats_TN, call),
                     c10::cuda::getCurrentCUDAStream());
  return {q, k, v, out_TNH, stats_TN};
}

variable_list planned_backward(const at::Tensor& dout_TNH, const variable_list& saved, const Call& call) {
  const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
  const at::Tensor dout = dense(dout_TNH);
  const at::Tensor dq = empty_gradient(q, *call.rows), dk = empty_gradient(k, *call.rows),
                   dv = empty_gradient(v, *call.rows);
  APUS_ASSERT(dq.strides() == q.strides() && q.is_contiguous(), "attention: dq has strides ", dq.strides(),
              ", q ", q.strides());
  PlanBuffers buffers = buffers_of(q, k, v, saved[3], saved[4], call);
  buffers.dout = dout.const_data_ptr();
  buffers.dq = dq.mutable_data_ptr();
  buffers.dk = dk.mutable_data_ptr();
  buffers.dv = dv.mutable_data_ptr();
  plans_of(call).run(call.backward, buffers, c10::cuda::getCurrentCUDAStream());
  return {dq, dk, dv};
}

variable_list flash_forward(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                            const Call& call) {
  FlashResult result = flash_attention(q_TNH, k_TKH, v_TKH, *call.rows);
  if (!call.room.is_empty()) {
    const at::Tensor out_TNH = empty_out(q_TNH, call);
    out_TNH.copy_(result.out_TNH);
    result.out_TNH = out_TNH;
  }
  return {q_TNH, k_TKH, v_TKH, result.out_TNH, result.stats_NT, result.random_state, result.unused};
}

variable_list flash_backward(const at::Tensor& dout_TNH, const variable_list& saved, const Call& call) {
  const FlashResult result{
      .out_TNH = saved[3], .stats_NT = saved[4], .random_state = saved[5], .unused = saved[6]};
  FlashGradients gradients =
      flash_attention_backward(dout_TNH, saved[0], saved[1], saved[2], result, *call.rows);
  return {std::move(gradients.q_TNH), std::move(gradients.k_TKH), std::move(gradients.v_TKH)};
}

class AttentionFunction final : public torch::autograd::Function<AttentionFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_TNH, const at::Tensor& k_TKH,
                            const at::Tensor& v_TKH, const c10::intrusive_ptr<Call>& call) {
    variable_list kept = (call->with_plan ? planned_forward : flash_forward)(q_TNH, k_TKH, v_TKH, *call);
    at::Tensor out_TNH = kept[3];
    if (!call->tape) return out_TNH;
    if (!call->room.is_empty()) kept[3] = out_TNH.variable_data();
    context->save_for_backward(std::move(kept));
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return out_TNH;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    APUS_CHECK(!at::GradMode::is_enabled(), NotSupported,
               "attention has no second derivative on a GPU; run backward without create_graph");
    const c10::cuda::CUDAGuard guard(gradients[0].device());
    const auto held = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const Call&>(*held);
    variable_list inputs = (call.with_plan ? planned_backward : flash_backward)(
        gradients[0], context->get_saved_variables(), call);
    inputs.emplace_back();
    return inputs;
  }
};

bool flash_takes(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH) {
  const int64_t head_dim = q_TNH.size(2);
  const at::ScalarType type = q_TNH.scalar_type();
  const auto readable = [type](const at::Tensor& x) { return x.scalar_type() == type && x.stride(2) == 1; };
  if (type != at::kBFloat16 && type != at::kHalf) return false;
  return head_dim % 8 == 0 && head_dim <= 256 && readable(q_TNH) && readable(k_TKH) && readable(v_TKH);
}

/// Sets the plans of a call, if cuDNN takes it.
void choose_plans(const at::Tensor& q_TNH, const at::Tensor& k_TKH, Call& call) {
  AttentionPlans* const plans = call.rows->plans();
  const int64_t heads = q_TNH.size(1), head_dim = q_TNH.size(2);
  const bool aligned = call.room.before % 8 == 0 && call.room.after % 8 == 0;
  if (plans == nullptr || !aligned || (head_dim != 64 && head_dim != 128)) return;
  if (q_TNH.scalar_type() != at::kBFloat16) return;
  const AttentionSizes sizes{.heads = heads,
                             .kv_heads = k_TKH.size(1),
                             .head_dim = head_dim,
                             .sequences = call.rows->sequences(),
                             .slots = call.rows->slots(),
                             .max_length = call.rows->max_length(),
                             .rows = q_TNH.size(0),
                             .out_stride = call.room.width(heads * head_dim)};
  if (!plans_take(sizes)) return;
  const bool deterministic = at::globalContext().deterministicAlgorithms();
  call.forward = forward_plan(sizes);
  call.backward = deterministic ? deterministic_backward_plan(sizes) : backward_plan(sizes);
  if (deterministic && score_bytes(call.backward) > kMaxScoreBytes) return;
  // Decided for both passes at once, and alike with and without a tape: a recompute must give the same bits.
  if (!deterministic && is_even(sizes)) {
    const PlanShape forward = even_plan(call.forward, sizes), backward = even_plan(call.backward, sizes);
    if (plans->has(forward) && plans->has(backward)) {
      call.forward = forward;
      call.backward = backward;
    }
  }
  call.with_plan = plans->has(call.forward) && plans->has(call.backward);
}

}  // namespace

at::Tensor attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                     const AttentionRows& rows, RowRoom out_room) {
  if (q_TNH.size(0) == 0 || !flash_takes(q_TNH, k_TKH, v_TKH))
    return twin::attention(q_TNH, k_TKH, v_TKH, rows);
  const c10::cuda::CUDAGuard guard(q_TNH.device());
  auto call = c10::make_intrusive<Call>();
  call->rows = rows.device
                   ? rows.device
                   : std::make_shared<const DeviceRows>(rows.lengths, rows.padded_length, q_TNH.device());
  APUS_CHECK(call->rows->rows() == q_TNH.size(0), ShapeError, "attention: the layout on the device has ",
             call->rows->rows(), " rows, q has ", q_TNH.size(0));
  call->room = out_room;
  call->tape =
      at::GradMode::is_enabled() && (q_TNH.requires_grad() || k_TKH.requires_grad() || v_TKH.requires_grad());
  choose_plans(q_TNH, k_TKH, *call);
  return AttentionFunction::apply(q_TNH, k_TKH, v_TKH, call);
}

std::shared_ptr<AttentionPlans> make_attention_plans() {
  return std::make_shared<AttentionPlans>();
}

}  // namespace apus::ops::cuda
