// The loss head. Logits [M, V] are the largest tensor of a training step (16k tokens of a 152k vocabulary:
// 10 GB in fp32), so they exist for one chunk of rows at a time. What the forward pass keeps instead is the
// gradient itself, before the incoming factor is known: logp[m] depends on row m alone, so its gradient is a
// row that backward only has to scale. That costs one more product per chunk in forward and saves computing
// the logits again; a weight gradient needs the factor inside a sum over rows, so it does compute them again,
// unless the factors are known from the start.
#include "apus/ops/token_log_probs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "apus/base/error.h"
#include "apus/memory/grad_sink.h"
#include "ops/token_log_probs_cuda.h"

namespace apus::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunkBytes = int64_t{256} << 20;

int64_t chunk_rows(const TokenLogProbsOptions& options, int64_t vocab) {
  if (options.chunk_tokens > 0) return options.chunk_tokens;
  const int64_t bytes = options.chunk_bytes > 0 ? options.chunk_bytes : kChunkBytes;
  return std::max<int64_t>(1, bytes / (vocab * static_cast<int64_t>(sizeof(float))));
}

/// Calls `body(first, count)` for consecutive ranges that cover `rows`.
void for_chunks(int64_t rows, int64_t chunk, const std::function<void(int64_t, int64_t)>& body) {
  for (int64_t first = 0; first < rows; first += chunk) body(first, std::min(chunk, rows - first));
}

/// fp32 logits of a chunk; they are rounded to the operands' dtype first, as a model's own logits are.
at::Tensor chunk_logits(const at::Tensor& hidden_CD, const at::Tensor& weight_VD) {
  return at::linear(hidden_CD, weight_VD).to(at::kFloat);
}

/// d logp / d logits = onehot(target) - softmax, made in the logits' own memory.
at::Tensor logit_gradient_(at::Tensor logits_CV, const at::Tensor& logsumexp_C1,
                           const at::Tensor& targets_C1) {
  logits_CV.sub_(logsumexp_C1).exp_().neg_();
  const at::Tensor at_target_C1 = logits_CV.gather(1, targets_C1).add_(1.0);
  return logits_CV.scatter_(1, targets_C1, at_target_C1);
}

/// What a gradient wants from the forward pass.
struct Wanted {
  bool hidden = false;
  bool weight = false;
  bool weight_now = false;  ///< the weight's gradient is made in it, as the rows' factors are known
};

struct ForwardResult {
  at::Tensor logp_M;
  at::Tensor logsumexp_M;         ///< only if backward makes the weight's gradient
  at::Tensor hidden_gradient_MD;  ///< only if hidden needs a gradient; not scaled
  at::Tensor weight_gradient_VD;  ///< fp32; only if it is made now
};

at::Tensor fp32_zeros_like(const at::Tensor& weight_VD) {
  return at::zeros(weight_VD.sizes(), weight_VD.options().dtype(at::kFloat));
}

/// dW += sum_c g[c] * (d logp[c] / d logits[c])^T hidden[c], in fp32; overwrites the logits' gradient.
void add_weight_gradient(const at::Tensor& sum_VD, at::Tensor gradient_CV, const at::Tensor& hidden_CD,
                         const at::Tensor& scale_C1) {
  gradient_CV.mul_(scale_C1);
  at::Tensor(sum_VD).addmm_(gradient_CV.t(), hidden_CD.to(at::kFloat));
}

ForwardResult forward_chunks(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                             const at::Tensor& targets_M, const TokenLogProbsOptions& options, int64_t chunk,
                             Wanted wanted) {
  const int64_t rows = hidden_MD.size(0);
  const auto fp32 = hidden_MD.options().dtype(at::kFloat);
  const at::Tensor& is_argmax_M = options.is_argmax_M;
  ForwardResult result{at::empty({rows}, fp32), {}, {}, {}};
  if (wanted.weight && !wanted.weight_now) result.logsumexp_M = at::empty({rows}, fp32);
  if (wanted.hidden) result.hidden_gradient_MD = at::empty(hidden_MD.sizes(), hidden_MD.options());
  if (wanted.weight_now) result.weight_gradient_VD = fp32_zeros_like(weight_VD);
  for_chunks(rows, chunk, [&](int64_t first, int64_t count) {
    const at::Tensor hidden_CD = hidden_MD.narrow(0, first, count);
    at::Tensor logits_CV = chunk_logits(hidden_CD, weight_VD);
    const at::Tensor targets_C1 = targets_M.narrow(0, first, count).unsqueeze(1);
    const at::Tensor logsumexp_C1 = logits_CV.logsumexp(1, /*keepdim=*/true);
    result.logp_M.narrow(0, first, count).copy_((logits_CV.gather(1, targets_C1) - logsumexp_C1).squeeze(1));
    if (result.logsumexp_M.defined())
      result.logsumexp_M.narrow(0, first, count).copy_(logsumexp_C1.squeeze(1));
    if (is_argmax_M.defined())
      is_argmax_M.narrow(0, first, count).copy_(logits_CV.argmax(1).eq(targets_C1.squeeze(1)));
    if (!wanted.hidden && !wanted.weight_now) return;
    const at::Tensor gradient_CV = logit_gradient_(std::move(logits_CV), logsumexp_C1, targets_C1);
    if (wanted.hidden) {
      at::Tensor out_CD = result.hidden_gradient_MD.narrow(0, first, count);
      at::mm_out(out_CD, gradient_CV.to(weight_VD.scalar_type()), weight_VD);
    }
    if (wanted.weight_now) {
      add_weight_gradient(result.weight_gradient_VD, gradient_CV, hidden_CD,
                          options.row_scale_M.narrow(0, first, count).unsqueeze(1));
    }
  });
  return result;
}

/// The weight's gradient in fp32, the logits computed again.
at::Tensor weight_gradient(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                           const at::Tensor& targets_M, const at::Tensor& logsumexp_M,
                           const at::Tensor& scale_M, int64_t chunk) {
  at::Tensor sum_VD = fp32_zeros_like(weight_VD);
  for_chunks(hidden_MD.size(0), chunk, [&](int64_t first, int64_t count) {
    const at::Tensor hidden_CD = hidden_MD.narrow(0, first, count);
    const auto column = [&](const at::Tensor& x_M) { return x_M.narrow(0, first, count).unsqueeze(1); };
    add_weight_gradient(
        sum_VD, logit_gradient_(chunk_logits(hidden_CD, weight_VD), column(logsumexp_M), column(targets_M)),
        hidden_CD, column(scale_M));
  });
  return sum_VD;
}

/// Puts a weight's gradient where it belongs; what is returned goes to the tape.
at::Tensor hand_over(const at::Tensor& sum_VD, const at::Tensor& weight_VD, memory::GradSink* gradients) {
  const auto target = gradients ? gradients->target(weight_VD) : std::nullopt;
  if (!target) return sum_VD.to(weight_VD.scalar_type());
  if (target->is_fresh)
    target->grad.copy_(sum_VD);
  else
    target->grad.add_(sum_VD);
  return {};
}

/// The gradient of the weight was made with these factors.
void check_scale(const at::Tensor& scale_M, const at::Tensor& row_scale_M) {
  APUS_CHECK(at::allclose(scale_M, row_scale_M, /*rtol=*/1e-4, /*atol=*/1e-30), ConfigError,
             "token_log_probs: row_scale_M said what backward would bring, but it brought something else; "
             "divide the loss as row_scale_M says, or leave it out");
}

/// What a forward keeps; some are undefined.
struct Saved {
  at::Tensor hidden_gradient_MD, hidden_MD, weight_VD, targets_M, logsumexp_M, row_scale_M,
      weight_gradient_VD;

  variable_list list() const {
    return {hidden_gradient_MD, hidden_MD,   weight_VD,         targets_M,
            logsumexp_M,        row_scale_M, weight_gradient_VD};
  }
  static Saved of(const variable_list& all) {
    return {all.at(0), all.at(1), all.at(2), all.at(3), all.at(4), all.at(5), all.at(6)};
  }
};

class TokenLogProbsFunction final : public torch::autograd::Function<TokenLogProbsFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden_MD,
                            const at::Tensor& weight_VD, const at::Tensor& targets_M,
                            const TokenLogProbsOptions& options, bool hidden_wanted, bool weight_wanted) {
    const int64_t chunk = chunk_rows(options, weight_VD.size(0));
    const bool weight_now = weight_wanted && options.row_scale_M.defined();
    const ForwardResult result = forward_chunks(hidden_MD, weight_VD, targets_M, options, chunk,
                                                {hidden_wanted, weight_wanted, weight_now});
    Saved saved{.hidden_gradient_MD = result.hidden_gradient_MD};
    if (weight_now) {
      saved.row_scale_M = options.row_scale_M;
      saved.weight_gradient_VD = hand_over(result.weight_gradient_VD, weight_VD, options.gradients);
    } else if (weight_wanted) {
      saved.hidden_MD = hidden_MD;
      saved.weight_VD = weight_VD;
      saved.targets_M = targets_M;
      saved.logsumexp_M = result.logsumexp_M;
    }
    // Tensors go through save_for_backward alone: it frees them after backward, saved_data does not.
    context->save_for_backward(saved.list());
    context->saved_data["chunk"] = chunk;
    context->saved_data["gradients"] = reinterpret_cast<int64_t>(options.gradients);
    return result.logp_M;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    APUS_CHECK(!at::GradMode::is_enabled(), NotSupported,
               "token_log_probs has no second derivative; run backward without create_graph");
    const at::Tensor& scale_M = gradients[0];
    const Saved saved = Saved::of(context->get_saved_variables());
    at::Tensor hidden_gradient_MD, weight_gradient_VD = saved.weight_gradient_VD;
    if (saved.row_scale_M.defined()) check_scale(scale_M, saved.row_scale_M);
    if (saved.hidden_gradient_MD.defined()) {
      hidden_gradient_MD = at::empty_like(saved.hidden_gradient_MD);
      at::mul_out(hidden_gradient_MD, saved.hidden_gradient_MD, scale_M.unsqueeze(1));
    }
    if (saved.weight_VD.defined()) {
      auto* const sink =
          reinterpret_cast<memory::GradSink*>(context->saved_data["gradients"].toInt());  // NOLINT
      weight_gradient_VD =
          hand_over(weight_gradient(saved.hidden_MD, saved.weight_VD, saved.targets_M, saved.logsumexp_M,
                                    scale_M, context->saved_data["chunk"].toInt()),
                    saved.weight_VD, sink);
    }
    return {hidden_gradient_MD, weight_gradient_VD, {}, {}, {}, {}};
  }
};

void check_scales(const at::Tensor& row_scale_M, const at::Tensor& targets_M) {
  if (!row_scale_M.defined()) return;
  APUS_CHECK(row_scale_M.scalar_type() == at::kFloat && row_scale_M.sizes() == targets_M.sizes(), ShapeError,
             "token_log_probs: row_scale_M must be fp32 ", targets_M.sizes(), ", it is ",
             row_scale_M.scalar_type(), " ", row_scale_M.sizes());
}

void check_hits(const at::Tensor& is_argmax_M, const at::Tensor& targets_M) {
  if (!is_argmax_M.defined()) return;
  APUS_CHECK(is_argmax_M.scalar_type() == at::kBool && is_argmax_M.sizes() == targets_M.sizes(), ShapeError,
             "token_log_probs: is_argmax_M must be bool ", targets_M.sizes(), ", it is ",
             is_argmax_M.scalar_type(), " ", is_argmax_M.sizes());
}

void check_operands(const at::Tensor& hidden_MD, const at::Tensor& weight_VD, const at::Tensor& targets_M) {
  APUS_CHECK(hidden_MD.dim() == 2 && weight_VD.dim() == 2 && hidden_MD.size(1) == weight_VD.size(1),
             ShapeError, "token_log_probs: hidden must be [M, D] and the weight [V, D]; they are ",
             hidden_MD.sizes(), " and ", weight_VD.sizes());
  APUS_CHECK(hidden_MD.scalar_type() == weight_VD.scalar_type(), ShapeError, "token_log_probs: hidden is ",
             hidden_MD.scalar_type(), " but the weight is ", weight_VD.scalar_type());
  APUS_CHECK(
      targets_M.dim() == 1 && targets_M.scalar_type() == at::kLong && targets_M.size(0) == hidden_MD.size(0),
      ShapeError, "token_log_probs: targets must be int64 [", hidden_MD.size(0), "], they are ",
      targets_M.scalar_type(), " ", targets_M.sizes());
  if (!targets_M.is_cpu() || targets_M.numel() == 0) return;
  const auto [least, most] = at::aminmax(targets_M);
  const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
  APUS_CHECK(low >= 0 && high < weight_VD.size(0), ShapeError, "token_log_probs: target ",
             low < 0 ? low : high, " is outside the vocabulary of ", weight_VD.size(0), " rows");
}

}  // namespace

int64_t gpu_logit_bytes(int64_t card_bytes) {
  constexpr int64_t kMost = int64_t{5} << 29, kShare = 32;
  return std::min(kMost, card_bytes / kShare);
}

at::Tensor token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                           const at::Tensor& targets_M, const TokenLogProbsOptions& options) {
  check_operands(hidden_MD, weight_VD, targets_M);
  APUS_CHECK(options.chunk_tokens >= 0 && options.chunk_bytes >= 0, ConfigError,
             "token_log_probs: chunk_tokens and chunk_bytes must be 0 or more, they are ",
             options.chunk_tokens, " and ", options.chunk_bytes);
  check_hits(options.is_argmax_M, targets_M);
  check_scales(options.row_scale_M, targets_M);
  if (cuda::takes_log_probs(hidden_MD, weight_VD))
    return cuda::token_log_probs(hidden_MD, weight_VD, targets_M, options);
  const bool tape = at::GradMode::is_enabled();
  return TokenLogProbsFunction::apply(hidden_MD, weight_VD, targets_M, options,
                                      tape && hidden_MD.requires_grad(), tape && weight_VD.requires_grad());
}

}  // namespace apus::ops
