// The tape around the rotation's kernels. The rotation itself keeps the tables alone: its backward turns the
// gradients back. With norms, the heads before them are read again.
#include "ops/rotary_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/cuda/kernel_operands.h"
#include "ops/kernels/partial_sums.h"
#include "ops/kernels/rotary.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Start and row stride of heads inside rows.
struct Place {
  void* data = nullptr;
  int64_t stride = 0;
};

/// Of [T, heads, H] whose heads lie one after another; nothing for an undefined tensor.
Place place_of(const at::Tensor& x_TNH) {
  if (!x_TNH.defined()) return {};
  return {const_cast<void*>(x_TNH.const_data_ptr()),
          x_TNH.size(0) <= 1 ? x_TNH.size(1) * x_TNH.size(2) : x_TNH.stride(0)};
}

/// Of the heads that begin at `first` in rows [T, C].
Place place_in(const at::Tensor& rows_TC, int64_t first, int64_t head_dim) {
  auto* data = static_cast<char*>(const_cast<void*>(rows_TC.const_data_ptr()));
  return {data + first * head_dim * static_cast<int64_t>(rows_TC.element_size()), row_stride(rows_TC)};
}

kernels::HeadRows between(Place from, Place to, int64_t heads) {
  return {from.data, from.stride, to.data, to.stride, static_cast<int>(heads)};
}

/// [T, heads, H] as a kernel reads it: heads dense inside a row, rows as kernel_rows.
at::Tensor head_rows(const at::Tensor& x_TNH) {
  if (!x_TNH.defined()) return x_TNH;
  const int64_t head_dim = x_TNH.size(2);
  const bool joined = x_TNH.stride(2) == 1 && (x_TNH.size(1) == 1 || x_TNH.stride(1) == head_dim);
  const at::Tensor rows_TC =
      kernel_rows(joined ? x_TNH.as_strided({x_TNH.size(0), x_TNH.size(1) * head_dim}, {x_TNH.stride(0), 1})
                         : x_TNH.reshape({x_TNH.size(0), x_TNH.size(1) * head_dim}));
  return rows_TC.as_strided(x_TNH.sizes(), {row_stride(rows_TC), head_dim, 1});
}

at::Tensor empty_heads(const at::Tensor& like, int64_t heads, int64_t head_dim) {
  return at::empty({like.size(0), heads, head_dim}, like.options());
}

/// The kernels' arguments but for the places of the heads.
kernels::RotaryRows job_of(const at::Tensor& cos_TH, const at::Tensor& sin_TH) {
  return {.cos = cos_TH.const_data_ptr(),
          .sin = sin_TH.const_data_ptr(),
          .rows = cos_TH.size(0),
          .head_dim = static_cast<int>(cos_TH.size(1))};
}

/// Rows of q, k and v on one side, dense heads on the other.
struct Split {
  at::Tensor rows_TC;
  QkvHeads heads;

  kernels::RotaryRows apart(const Qkv& to, kernels::RotaryRows job) const {
    job.q = between(place_in(rows_TC, 0, heads.head_dim), place_of(to.q_TNH), heads.heads);
    job.k = between(place_in(rows_TC, heads.heads, heads.head_dim), place_of(to.k_TKH), heads.kv_heads);
    job.v = between(place_in(rows_TC, heads.heads + heads.kv_heads, heads.head_dim), place_of(to.v_TKH),
                    heads.kv_heads);
    return job;
  }
  /// Undefined heads are zeros.
  kernels::RotaryRows together(const Qkv& from, kernels::RotaryRows job) const {
    job.q = between(place_of(from.q_TNH), place_in(rows_TC, 0, heads.head_dim), heads.heads);
    job.k = between(place_of(from.k_TKH), place_in(rows_TC, heads.heads, heads.head_dim), heads.kv_heads);
    job.v = between(place_of(from.v_TKH), place_in(rows_TC, heads.heads + heads.kv_heads, heads.head_dim),
                    heads.kv_heads);
    return job;
  }
};

Qkv empty_qkv(const at::Tensor& like, const QkvHeads& heads) {
  return {empty_heads(like, heads.heads, heads.head_dim), empty_heads(like, heads.kv_heads, heads.head_dim),
          empty_heads(like, heads.kv_heads, heads.head_dim)};
}

/// What backward needs besides tensors.
void keep(AutogradContext* context, const QkvHeads& heads, RowRoom room) {
  context->saved_data["heads"] = heads.heads;
  context->saved_data["kv_heads"] = heads.kv_heads;
  context->saved_data["before"] = room.before;
  context->saved_data["after"] = room.after;
  context->set_materialize_grads(false);
}

/// The gradients' rows to be, and the gradients as kernels read them.
struct Joined {
  Split split;
  Qkv grads;
};

Joined joined(AutogradContext* context, const variable_list& grads, const at::Tensor& cos_TH) {
  const QkvHeads heads{context->saved_data.at("heads").toInt(), context->saved_data.at("kv_heads").toInt(),
                       cos_TH.size(1)};
  const RowRoom room{context->saved_data.at("before").toInt(), context->saved_data.at("after").toInt()};
  return {{result_rows(cos_TH.size(0), heads.columns(), room, cos_TH), heads},
          {head_rows(grads[0]), head_rows(grads[1]), head_rows(grads[2])}};
}

class TurnedQkv final : public torch::autograd::Function<TurnedQkv> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv_TC, const at::Tensor& cos_TH,
                               const at::Tensor& sin_TH, const QkvHeads& heads, RowRoom grad_room) {
    context->save_for_backward({cos_TH, sin_TH});
    keep(context, heads, grad_room);
    const Split split{kernel_rows(qkv_TC), heads};
    const Qkv made = empty_qkv(qkv_TC, heads);
    if (qkv_TC.size(0) > 0)
      kernels::rotary_forward(split.apart(made, job_of(cos_TH, sin_TH)), element_of(qkv_TC),
                              stream_of(qkv_TC));
    return {made.q_TNH, made.k_TKH, made.v_TKH};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("rotary_qkv");
    const variable_list saved = context->get_saved_variables();
    const Joined join = joined(context, grads, saved[0]);
    const at::Tensor& rows_TC = join.split.rows_TC;
    if (rows_TC.size(0) > 0)
      kernels::rotary_backward(join.split.together(join.grads, job_of(saved[0], saved[1])),
                               element_of(rows_TC), stream_of(rows_TC));
    return {rows_TC, {}, {}, {}, {}};
  }
};

/// With norms of queries and keys.
class NormedQkv final : public torch::autograd::Function<NormedQkv> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv_TC,
                               const at::Tensor& q_weight_H, const at::Tensor& k_weight_H,
                               const at::Tensor& cos_TH, const at::Tensor& sin_TH, const QkvHeads& heads,
                               double eps, RowRoom grad_room) {
    const at::Tensor scale =
        at::empty({qkv_TC.size(0), heads.heads + heads.kv_heads}, qkv_TC.options().dtype(at::kFloat));
    context->save_for_backward({qkv_TC, q_weight_H, k_weight_H, cos_TH, sin_TH, scale});
    keep(context, heads, grad_room);
    const Split split{kernel_rows(qkv_TC), heads};
    const Qkv made = empty_qkv(qkv_TC, heads);
    const at::Tensor q_weight = kernel_rows(q_weight_H.unsqueeze(0)),
                     k_weight = kernel_rows(k_weight_H.unsqueeze(0));
    if (qkv_TC.size(0) > 0)
      kernels::normed_rotary_forward(split.apart(made, job_of(cos_TH, sin_TH)),
                                     {.q_weight = q_weight.const_data_ptr(),
                                      .k_weight = k_weight.const_data_ptr(),
                                      .scale = scale.mutable_data_ptr<float>(),
                                      .eps = static_cast<float>(eps)},
                                     element_of(qkv_TC), stream_of(qkv_TC));
    return {made.q_TNH, made.k_TKH, made.v_TKH};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("rotary_qkv");
    const variable_list saved = context->get_saved_variables();
    const bool for_weights = context->needs_input_grad(1) || context->needs_input_grad(2);
    const Joined join = joined(context, grads, saved[3]);
    const at::Tensor weights =
        for_weights ? at::empty({2, saved[3].size(1)}, saved[0].options()) : at::Tensor();
    if (join.split.rows_TC.size(0) > 0)
      backward_rows(saved, join, weights);
    else if (for_weights)
      weights.zero_();
    variable_list found(8);
    found[0] = join.split.rows_TC;
    if (for_weights) {
      found[1] = weights.select(0, 0);
      found[2] = weights.select(0, 1);
    }
    return found;
  }

 private:
  static void backward_rows(const variable_list& saved, const Joined& join, const at::Tensor& weights) {
    const at::Tensor qkv_TC = kernel_rows(saved[0]), q_weight = kernel_rows(saved[1].unsqueeze(0)),
                     k_weight = kernel_rows(saved[2].unsqueeze(0));
    const QkvHeads& heads = join.split.heads;
    const kernels::Element element = element_of(qkv_TC);
    const kernels::RotaryRows job = join.split.together(join.grads, job_of(saved[3], saved[4]));
    const Place q = place_in(qkv_TC, 0, heads.head_dim), k = place_in(qkv_TC, heads.heads, heads.head_dim);
    kernels::HeadNormBackward norm{.norm = {.q_weight = q_weight.const_data_ptr(),
                                            .k_weight = k_weight.const_data_ptr(),
                                            .scale = saved[5].mutable_data_ptr<float>()},
                                   .q = q.data,
                                   .k = k.data,
                                   .stride = q.stride};
    at::Tensor partials;
    if (weights.defined()) {
      partials =
          at::empty({kernels::normed_rotary_partials(job, element), 2 * heads.head_dim}, saved[5].options());
      norm.partials = partials.mutable_data_ptr<float>();
    }
    kernels::normed_rotary_backward(job, norm, element, stream_of(qkv_TC));
    if (weights.defined())
      kernels::sum_partials(norm.partials, partials.size(0), partials.size(1), weights.mutable_data_ptr(),
                            element, stream_of(qkv_TC));
  }
};

/// Queries and keys that lie apart.
class Turned final : public torch::autograd::Function<Turned> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q_TNH, const at::Tensor& k_TKH,
                               const at::Tensor& cos_TH, const at::Tensor& sin_TH) {
    context->save_for_backward({cos_TH, sin_TH});
    return turn(q_TNH, k_TKH, cos_TH, sin_TH, kernels::rotary_forward);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("rotary");
    const variable_list saved = context->get_saved_variables();
    variable_list turned = turn(grads[0], grads[1], saved[0], saved[1], kernels::rotary_backward);
    return {turned[0], turned[1], {}, {}};
  }

 private:
  template <typename Kernel>
  static variable_list turn(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TH,
                            const at::Tensor& sin_TH, Kernel kernel) {
    const at::Tensor q = head_rows(q_TNH), k = head_rows(k_TKH);
    const int64_t head_dim = cos_TH.size(1);
    const at::Tensor turned_q = empty_heads(q, q.size(1), head_dim),
                     turned_k = empty_heads(k, k.size(1), head_dim);
    kernels::RotaryRows job = job_of(cos_TH, sin_TH);
    job.q = between(place_of(q), place_of(turned_q), q.size(1));
    job.k = between(place_of(k), place_of(turned_k), k.size(1));
    if (job.rows > 0) kernel(job, element_of(q), stream_of(q));
    return {turned_q, turned_k};
  }
};

/// Tables as kernels read them: dense.
at::Tensor table(const at::Tensor& given_TH) {
  return kernel_rows(given_TH.detach().contiguous());
}

}  // namespace

bool takes_heads(const at::Tensor& x, int64_t head_dim, bool normed) {
  return is_kernel_tensor(x) && (normed ? kernels::normed_rotary_takes(head_dim, element_of(x))
                                        : kernels::rotary_takes(head_dim, element_of(x)));
}

Rotated rotary(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH) {
  const c10::cuda::CUDAGuard device(q_TNH.device());
  variable_list turned = Turned::apply(q_TNH, k_TKH, table(cos_TH), table(sin_TH));
  return {std::move(turned[0]), std::move(turned[1])};
}

Qkv rotary_qkv(const at::Tensor& qkv_TC, const QkvHeads& heads, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH, const QkNorm& norm, RowRoom grad_room) {
  const c10::cuda::CUDAGuard device(qkv_TC.device());
  const at::Tensor cos = table(cos_TH), sin = table(sin_TH);
  variable_list made = norm.q_weight_H.defined() ? NormedQkv::apply(qkv_TC, norm.q_weight_H, norm.k_weight_H,
                                                                    cos, sin, heads, norm.eps, grad_room)
                                                 : TurnedQkv::apply(qkv_TC, cos, sin, heads, grad_room);
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

}  // namespace apus::ops::cuda
