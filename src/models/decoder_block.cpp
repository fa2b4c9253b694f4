#include "models/decoder_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "apus/ops/activation.h"
#include "apus/ops/attention.h"
#include "apus/ops/rotary.h"
#include "apus/ops/select_rows.h"

namespace apus::models {
namespace {

nn::RmsNormOptions norm_options(const DecoderConfig& config, at::ScalarType dtype) {
  return {.size = config.hidden_size, .eps = config.rms_norm_eps, .dtype = dtype};
}

/// A projection from D to `heads` heads.
nn::LinearOptions to_heads(const DecoderConfig& config, int64_t heads, at::ScalarType dtype) {
  return {.in_features = config.hidden_size,
          .out_features = heads * config.head_dim,
          .bias = config.qkv_bias,
          .dtype = dtype};
}

nn::LinearOptions mlp_options(const DecoderConfig& config, int64_t in, int64_t out, at::ScalarType dtype) {
  return {.in_features = in, .out_features = out, .bias = config.mlp_bias, .dtype = dtype};
}

/// The pass of the rows that are read.
nn::PassContext context_at(const nn::ReadRows& read, const nn::PassContext& context) {
  nn::PassContext of_rows = context;
  of_rows.dropout = read.dropout;
  return of_rows;
}

}  // namespace

at::Tensor RowsBehind::of(const at::Tensor& x_TD, ops::RowRoom room) const {
  return read ? ops::select_rows(x_TD, read->rows_M, room) : x_TD;
}

DecoderAttention::DecoderAttention(const DecoderConfig& c, at::ScalarType dtype)
    : head_dim_(c.head_dim),
      group_(c.num_attention_heads / c.num_key_value_heads),
      q_proj_(to_heads(c, c.num_attention_heads, dtype)),
      k_proj_(to_heads(c, c.num_key_value_heads, dtype)),
      v_proj_(to_heads(c, c.num_key_value_heads, dtype)),
      o_proj_({.in_features = c.num_attention_heads * c.head_dim,
               .out_features = c.hidden_size,
               .bias = c.o_bias,
               .dtype = dtype}),
      qkv_({&q_proj_, &k_proj_, &v_proj_}),
      output_({&o_proj_}) {
  register_module("q_proj", q_proj_);
  register_module("k_proj", k_proj_);
  register_module("v_proj", v_proj_);
  register_module("o_proj", o_proj_);
  if (!c.qk_norm) return;
  const nn::RmsNormOptions options{.size = c.head_dim, .eps = c.rms_norm_eps, .dtype = dtype};
  q_norm_ = std::make_unique<nn::RmsNorm>(options);
  k_norm_ = std::make_unique<nn::RmsNorm>(options);
  register_module("q_norm", *q_norm_);
  register_module("k_norm", *k_norm_);
}

at::Tensor DecoderAttention::forward(const ops::Recomputed& x_TD, const nn::PassContext& context,
                                     const RowsBehind& behind) const {
  // The number of heads comes from the product, not from the config: a column split leaves some of them.
  const auto heads = [&](const nn::Linear& projection) {
    return projection.forward(x_TD.value(), context).unflatten(-1, {-1, head_dim_});
  };
  const auto normed = [&](const std::unique_ptr<nn::RmsNorm>& norm, const at::Tensor& x) {
    return norm ? norm->forward_light(x, context) : ops::Recomputed(x);
  };
  const at::Tensor v_TKH = heads(v_proj_), q_TNH = heads(q_proj_), k_TKH = heads(k_proj_);
  x_TD.drop_until({q_TNH, k_TKH, v_TKH});
  const ops::Recomputed normed_q = normed(q_norm_, q_TNH), normed_k = normed(k_norm_, k_TKH);
  const ops::Rotated turned = ops::rotary(normed_q.value(), normed_k.value(), context.cos_TH, context.sin_TH);
  normed_q.drop_until({turned.q_TNH});
  normed_k.drop_until({turned.k_TKH});
  const at::Tensor y_TNH = ops::attention(turned.q_TNH, turned.k_TKH, v_TKH, nn::attention_rows(context));
  return o_proj_.forward(behind.of(y_TNH.flatten(1)), behind.context);
}

ops::Qkv DecoderAttention::turned_heads(const at::Tensor& qkv_TC, const nn::PassContext& context) const {
  const int64_t kv_heads = qkv_TC.size(1) / head_dim_ / (group_ + 2);
  ops::QkNorm norm;
  if (q_norm_) norm = {q_norm_->weight(context), k_norm_->weight(context), q_norm_->eps()};
  return ops::rotary_qkv(qkv_TC, {.heads = kv_heads * group_, .kv_heads = kv_heads, .head_dim = head_dim_},
                         context.cos_TH, context.sin_TH, norm, qkv_.grad_room(context));
}

at::Tensor DecoderAttention::forward_fused(const at::Tensor& x_TD, const at::Tensor& residual_MD,
                                           std::function<at::Tensor()> remake_x,
                                           const nn::PassContext& context, const RowsBehind& behind) const {
  const ops::Qkv heads =
      turned_heads(qkv_.forward(x_TD, context, {.remake_x = std::move(remake_x)}), context);
  const ops::RowRoom room = output_.input_room(behind.context);
  const at::Tensor y_TNH = ops::attention(heads.q_TNH, heads.k_TKH, heads.v_TKH, nn::attention_rows(context),
                                          behind.read ? ops::RowRoom() : room);
  return output_.forward(behind.of(y_TNH.flatten(1), room), behind.context, {.residual_TO = residual_MD});
}

DecoderMlp::DecoderMlp(const DecoderConfig& c, at::ScalarType dtype)
    : gate_proj_(mlp_options(c, c.hidden_size, c.intermediate_size, dtype)),
      up_proj_(mlp_options(c, c.hidden_size, c.intermediate_size, dtype)),
      down_proj_(mlp_options(c, c.intermediate_size, c.hidden_size, dtype)),
      gate_up_({&gate_proj_, &up_proj_}, ops::JointLayout::kBeside),
      down_({&down_proj_}) {
  register_module("gate_proj", gate_proj_);
  register_module("up_proj", up_proj_);
  register_module("down_proj", down_proj_);
}

at::Tensor DecoderMlp::forward(const ops::Recomputed& x_TD, const nn::PassContext& context) const {
  const at::Tensor gate_TF = gate_proj_.forward(x_TD.value(), context);
  const at::Tensor up_TF = up_proj_.forward(x_TD.value(), context);
  x_TD.drop_until({gate_TF, up_TF});
  if (!context.light_tape) return down_proj_.forward(ops::swiglu(gate_TF, up_TF), context);
  const ops::Recomputed act_TF({gate_TF, up_TF}, [](const std::vector<at::Tensor>& inputs) {
    return ops::swiglu(inputs[0], inputs[1]);
  });
  const at::Tensor down_TD = down_proj_.forward(act_TF.value(), context);
  act_TF.drop_until({down_TD});
  return down_TD;
}

at::Tensor DecoderMlp::forward_fused(const at::Tensor& x_TD, const at::Tensor& residual_TD,
                                     std::function<at::Tensor()> remake_x,
                                     const nn::PassContext& context) const {
  const at::Tensor gate_up_TG = gate_up_.forward(x_TD, context, {.remake_x = std::move(remake_x)});
  const ops::RowRoom room = down_.input_room(context);
  const at::Tensor act_TF =
      ops::swiglu_packed(gate_up_TG, {.out = room, .grad = gate_up_.grad_room(context)});
  nn::JointUse use{.residual_TO = residual_TD, .output_is_unread = context.output_is_unread};
  if (context.light_tape) {
    use.remake_x = [gate_up = gate_up_TG.detach(), room] {
      const at::NoGradGuard no_grad;
      return ops::swiglu_packed(gate_up, {.out = room});
    };
  }
  return down_.forward(act_TF, context, use);
}

DecoderBlock::DecoderBlock(const DecoderConfig& config, at::ScalarType dtype)
    : input_layernorm_(norm_options(config, dtype)),
      post_attention_layernorm_(norm_options(config, dtype)),
      self_attn_(config, dtype),
      mlp_(config, dtype) {
  register_module("input_layernorm", input_layernorm_);
  register_module("self_attn", self_attn_);
  register_module("post_attention_layernorm", post_attention_layernorm_);
  register_module("mlp", mlp_);
}

at::Tensor DecoderBlock::forward(const at::Tensor& hidden_TD, const nn::PassContext& context) {
  if (hidden_TD.is_cuda()) return forward_fused(hidden_TD, context);
  return run(hidden_TD, context, {context});
}

at::Tensor DecoderBlock::forward_read(const at::Tensor& hidden_TD, const nn::ReadRows& read,
                                      const nn::PassContext& context) {
  if (hidden_TD.is_cuda()) return forward_read_fused(hidden_TD, read, context);
  return run(hidden_TD, context, {context_at(read, context), &read});
}

at::Tensor DecoderBlock::forward_fused(const at::Tensor& hidden_TD, const nn::PassContext& context) {
  return run_fused(hidden_TD, context, {context});
}

at::Tensor DecoderBlock::forward_read_fused(const at::Tensor& hidden_TD, const nn::ReadRows& read,
                                            const nn::PassContext& context) {
  return run_fused(hidden_TD, context, {context_at(read, context), &read});
}

at::Tensor DecoderBlock::run(const at::Tensor& hidden_TD, const nn::PassContext& context,
                             const RowsBehind& behind) {
  const at::Tensor attended_MD =
      self_attn_.forward(input_layernorm_.forward_light(hidden_TD, context), context, behind);
  const at::Tensor hidden_MD = behind.of(hidden_TD);
  if (!context.light_tape) {
    const ops::AddRmsNorm joined =
        post_attention_layernorm_.forward_add(attended_MD, hidden_MD, behind.context);
    return joined.sum + mlp_.forward(ops::Recomputed(joined.normed), behind.context);
  }
  const at::Tensor sum_MD = attended_MD + hidden_MD;
  return sum_MD +
         mlp_.forward(post_attention_layernorm_.forward_light(sum_MD, behind.context), behind.context);
}

at::Tensor DecoderBlock::run_fused(const at::Tensor& hidden_TD, const nn::PassContext& context,
                                   const RowsBehind& behind) {
  // A norm's input gradient is the output gradient of the projection before it, which wants room there; the
  // first block's goes to the embedding, which does not mind.
  const auto norm = [&](const nn::RmsNorm& layer, const at::Tensor& x_TD, ops::RowRoom room,
                        const nn::JointLinear& before) {
    return layer.forward_residual(x_TD, context, {.normed = room, .grad = before.grad_room(context)});
  };
  const auto remake = [&](const nn::RmsNorm& layer, const at::Tensor& x_TD, ops::RowRoom room) {
    return context.light_tape ? layer.remake(x_TD, context, room) : std::function<at::Tensor()>();
  };
  const ops::RowRoom qkv_room = self_attn_.qkv().input_room(context);
  const ops::ResidualRmsNorm first = norm(input_layernorm_, hidden_TD, qkv_room, mlp_.down());
  const at::Tensor sum_MD = self_attn_.forward_fused(
      first.normed, behind.of(first.passed), remake(input_layernorm_, hidden_TD, qkv_room), context, behind);
  const ops::RowRoom mlp_room = mlp_.gate_up().input_room(context);
  const ops::ResidualRmsNorm second = norm(post_attention_layernorm_, sum_MD, mlp_room, self_attn_.output());
  return mlp_.forward_fused(second.normed, second.passed, remake(post_attention_layernorm_, sum_MD, mlp_room),
                            behind.context);
}

std::vector<nn::JointLinear*> DecoderBlock::joint_projections() {
  return {&self_attn_.qkv(), &self_attn_.output(), &mlp_.gate_up(), &mlp_.down()};
}

void DecoderBlock::place(const nn::PlaceOptions& options) {
  for (nn::JointLinear* joint : joint_projections()) joint->place(options);
  nn::Block::place(options);
}

}  // namespace apus::models
