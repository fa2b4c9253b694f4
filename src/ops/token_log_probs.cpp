// The loss head. Logits [M, V] are the largest tensor of a training step (16k tokens of a 152k vocabulary:
// 10 GB in fp32), so they exist for one chunk of rows at a time. What the forward pass keeps instead is the
// gradient itself, before the incoming factor is known: logp[m] depends on row m alone, so its gradient is a
// row that backward only has to scale. That costs one more product per chunk in forward and saves computing
// the logits again; a weight gradient needs the factor inside a sum over rows, so it does compute them again.
#include "apus/ops/token_log_probs.h"

#include <ATen/TensorOperators.h>
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

namespace apus::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunkBytes = int64_t{256} << 20;

int64_t chunk_rows(const TokenLogProbsOptions& options, int64_t vocab) {
  if (options.chunk_tokens > 0) return options.chunk_tokens;
  return std::max<int64_t>(1, kChunkBytes / (vocab * static_cast<int64_t>(sizeof(float))));
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
};

struct ForwardResult {
  at::Tensor logp_M;
  at::Tensor logsumexp_M;         ///< only if the weight needs a gradient
  at::Tensor hidden_gradient_MD;  ///< only if hidden needs a gradient; not scaled
};

ForwardResult forward_chunks(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                             const at::Tensor& targets_M, const at::Tensor& is_argmax_M, int64_t chunk,
                             Wanted wanted) {
  const int64_t rows = hidden_MD.size(0);
  const auto fp32 = hidden_MD.options().dtype(at::kFloat);
  ForwardResult result{at::empty({rows}, fp32), {}, {}};
  if (wanted.weight) result.logsumexp_M = at::empty({rows}, fp32);
  if (wanted.hidden) result.hidden_gradient_MD = at::empty(hidden_MD.sizes(), hidden_MD.options());
  for_chunks(rows, chunk, [&](int64_t first, int64_t count) {
    at::Tensor logits_CV = chunk_logits(hidden_MD.narrow(0, first, count), weight_VD);
    const at::Tensor targets_C1 = targets_M.narrow(0, first, count).unsqueeze(1);
    const at::Tensor logsumexp_C1 = logits_CV.logsumexp(1, /*keepdim=*/true);
    result.logp_M.narrow(0, first, count).copy_((logits_CV.gather(1, targets_C1) - logsumexp_C1).squeeze(1));
    if (wanted.weight) result.logsumexp_M.narrow(0, first, count).copy_(logsumexp_C1.squeeze(1));
    if (is_argmax_M.defined())
      is_argmax_M.narrow(0, first, count).copy_(logits_CV.argmax(1).eq(targets_C1.squeeze(1)));
    if (!wanted.hidden) return;
    const at::Tensor gradient_CV = logit_gradient_(std::move(logits_CV), logsumexp_C1, targets_C1);
    at::Tensor out_CD = result.hidden_gradient_MD.narrow(0, first, count);
    at::mm_out(out_CD, gradient_CV.to(weight_VD.scalar_type()), weight_VD);
  });
  return result;
}

/// dW = sum_m g[m] * (d logp[m] / d logits[m])^T hidden[m], the sum in fp32.
at::Tensor weight_gradient(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                           const at::Tensor& targets_M, const at::Tensor& logsumexp_M,
                           const at::Tensor& scale_M, int64_t chunk) {
  at::Tensor sum_VD = at::zeros(weight_VD.sizes(), weight_VD.options().dtype(at::kFloat));
  for_chunks(hidden_MD.size(0), chunk, [&](int64_t first, int64_t count) {
    const at::Tensor hidden_CD = hidden_MD.narrow(0, first, count);
    const auto column = [&](const at::Tensor& x_M) { return x_M.narrow(0, first, count).unsqueeze(1); };
    at::Tensor gradient_CV =
        logit_gradient_(chunk_logits(hidden_CD, weight_VD), column(logsumexp_M), column(targets_M));
    gradient_CV.mul_(column(scale_M));
    sum_VD.addmm_(gradient_CV.t(), hidden_CD.to(at::kFloat));
  });
  return sum_VD.to(weight_VD.scalar_type());
}

class TokenLogProbsFunction final : public torch::autograd::Function<TokenLogProbsFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden_MD,
                            const at::Tensor& weight_VD, const at::Tensor& targets_M,
                            const TokenLogProbsOptions& options, bool hidden_wanted, bool weight_wanted) {
    const int64_t chunk = chunk_rows(options, weight_VD.size(0));
    const ForwardResult result = forward_chunks(hidden_MD, weight_VD, targets_M, options.is_argmax_M, chunk,
                                                {hidden_wanted, weight_wanted});
    // Tensors go through save_for_backward alone: it frees them after backward, saved_data does not.
    if (weight_wanted)
      context->save_for_backward(
          {result.hidden_gradient_MD, hidden_MD, weight_VD, targets_M, result.logsumexp_M});
    else if (hidden_wanted)
      context->save_for_backward({result.hidden_gradient_MD});
    context->saved_data["chunk"] = chunk;
    context->saved_data["weight_wanted"] = weight_wanted;
    return result.logp_M;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    APUS_CHECK(!at::GradMode::is_enabled(), NotSupported,
               "token_log_probs has no second derivative; run backward without create_graph");
    const at::Tensor& scale_M = gradients[0];
    const variable_list saved = context->get_saved_variables();
    at::Tensor hidden_gradient_MD, weight_gradient_VD;
    if (saved[0].defined()) {
      hidden_gradient_MD = at::empty_like(saved[0]);
      at::mul_out(hidden_gradient_MD, saved[0], scale_M.unsqueeze(1));
    }
    if (context->saved_data["weight_wanted"].toBool())
      weight_gradient_VD = weight_gradient(saved[1], saved[2], saved[3], saved[4], scale_M,
                                           context->saved_data["chunk"].toInt());
    return {hidden_gradient_MD, weight_gradient_VD, {}, {}, {}, {}};
  }
};

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

at::Tensor token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                           const at::Tensor& targets_M, const TokenLogProbsOptions& options) {
  check_operands(hidden_MD, weight_VD, targets_M);
  APUS_CHECK(options.chunk_tokens >= 0, ConfigError,
             "token_log_probs: chunk_tokens must be 0 or more, it is ", options.chunk_tokens);
  check_hits(options.is_argmax_M, targets_M);
  const bool tape = at::GradMode::is_enabled();
  return TokenLogProbsFunction::apply(hidden_MD, weight_VD, targets_M, options,
                                      tape && hidden_MD.requires_grad(), tape && weight_VD.requires_grad());
}

}  // namespace apus::ops
