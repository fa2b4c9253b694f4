// The loss head on a GPU: for each chunk of rows one product for the logits, one kernel that turns them into
// log-probabilities and, in place, into their gradient (kernels/log_probs.cu), one product for the rows of
// dX. Where the factor of each row is known, the same gradient also gives dW at once, straight into the
// sink's buffer; else a weight's gradient computes the logits once more in backward.
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

#include "apus/base/error.h"
#include "apus/memory/grad_sink.h"
#include "ops/gemm.h"
#include "ops/kernels/log_probs.h"
#include "ops/kernels/scaled_rows.h"
#include "ops/token_log_probs_cuda.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowBytes = 128;  // logit rows start at multiples of it: vectors, and cache lines
constexpr int64_t kTile = 128;      // of the products, in rows

kernels::Element element_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::Element::kBf16 : kernels::Element::kFp32;
}

/// Elements from row to row of the logits.
int64_t logit_stride(const at::Tensor& weight_VD) {
  const int64_t unit = kRowBytes / static_cast<int64_t>(weight_VD.element_size());
  return (weight_VD.size(0) + unit - 1) / unit * unit;
}

/// What this process may take of the current card.
int64_t card_bytes() {
  const double share = c10::cuda::CUDACachingAllocator::getMemoryFraction(c10::cuda::current_device());
  return static_cast<int64_t>(share *
                              static_cast<double>(at::cuda::getCurrentDeviceProperties()->totalGlobalMem));
}

/// As many rows as the options allow, or evenly fewer where there are more, in tiles of the products.
int64_t chunk_rows(const TokenLogProbsOptions& options, const at::Tensor& weight_VD, int64_t rows) {
  const int64_t bytes = options.chunk_bytes > 0 ? options.chunk_bytes : gpu_logit_bytes(card_bytes());
  const int64_t row_bytes = logit_stride(weight_VD) * static_cast<int64_t>(weight_VD.element_size());
  const int64_t most =
      options.chunk_tokens > 0 ? options.chunk_tokens : std::max<int64_t>(1, bytes / row_bytes);
  if (most < kTile || rows <= most) return most;
  const int64_t tiled = most / kTile * kTile;
  const int64_t chunks = (rows + tiled - 1) / tiled;
  const int64_t even = (rows + chunks - 1) / chunks;
  return (even + kTile - 1) / kTile * kTile;
}

/// The weight's gradient on its way: written by the first chunk, added to by the others.
class WeightGradient final {
 public:
  WeightGradient(const at::Tensor& weight_VD, memory::GradSink* gradients, int64_t rows)
      : dtype_(weight_VD.scalar_type()) {
    const auto target = gradients && weight_VD.defined() ? gradients->target(weight_VD) : std::nullopt;
    is_ours_ = !target.has_value();
    sum_VD_ = target ? target->grad : at::empty(weight_VD.sizes(), weight_VD.options().dtype(at::kFloat));
    is_fresh_ = is_ours_ || target->is_fresh;
    if (rows == 0 && is_fresh_) sum_VD_.zero_();
  }

  /// Adds gradient^T hidden.
  void add(const at::Tensor& gradient_CV, const at::Tensor& hidden_CD) {
    gemm({.form = GemmForm::kTn,
          .a = gradient_CV,
          .b = hidden_CD,
          .d = sum_VD_,
          .beta = is_fresh_ ? 0.0 : 1.0});
    is_fresh_ = false;
  }

  /// What goes to the tape: undefined where the sink has it.
  at::Tensor for_tape() const { return is_ours_ ? sum_VD_.to(dtype_) : at::Tensor(); }

 private:
  at::ScalarType dtype_;
  bool is_ours_ = true;
  bool is_fresh_ = true;
  at::Tensor sum_VD_;
};

/// What one walk over the chunks reads and makes.
struct Walk {
  at::Tensor hidden_MD, weight_VD, targets_M;
  at::Tensor scale_M = {};             ///< fp32, of the gradient; undefined: 1
  at::Tensor logp_M = {};              ///< made, if defined
  at::Tensor is_argmax_M = {};         ///< made, if defined
  at::Tensor hidden_gradient_MD = {};  ///< made, if defined
  WeightGradient* weight_gradient = nullptr;
  int64_t chunk = 0;
};

template <class T>
T* data_or_null(const at::Tensor& x_C) {
  return x_C.defined() ? x_C.mutable_data_ptr<T>() : nullptr;
}

void walk_chunk(const Walk& walk, const at::Tensor& logits_CV, int64_t first) {
  const int64_t rows = logits_CV.size(0);
  const auto part = [&](const at::Tensor& x) { return x.defined() ? x.narrow(0, first, rows) : x; };
  const at::Tensor hidden_CD = part(walk.hidden_MD);
  gemm({.form = GemmForm::kNt, .a = hidden_CD, .b = walk.weight_VD, .d = logits_CV});
  kernels::launch_log_prob_rows(
      {.logits = logits_CV.mutable_data_ptr(),
       .stride = logits_CV.stride(0),
       .rows = rows,
       .vocab = logits_CV.size(1),
       .element = element_of(logits_CV),
       .makes_gradient = walk.hidden_gradient_MD.defined() || walk.weight_gradient != nullptr,
       .targets = part(walk.targets_M).const_data_ptr<int64_t>(),
       .scale = data_or_null<float>(part(walk.scale_M)),
       .log_probs = data_or_null<float>(part(walk.logp_M)),
       .is_argmax = data_or_null<bool>(part(walk.is_argmax_M))},
      c10::cuda::getCurrentCUDAStream());
  if (walk.hidden_gradient_MD.defined()) {
    gemm({.form = GemmForm::kNn, .a = logits_CV, .b = walk.weight_VD, .d = part(walk.hidden_gradient_MD)});
  }
  if (walk.weight_gradient) walk.weight_gradient->add(logits_CV, hidden_CD);
}

void walk_chunks(const Walk& walk) {
  const int64_t rows = walk.hidden_MD.size(0), vocab = walk.weight_VD.size(0);
  if (rows == 0) return;
  const at::Tensor buffer =
      at::empty({std::min(walk.chunk, rows), logit_stride(walk.weight_VD)}, walk.weight_VD.options());
  for (int64_t first = 0; first < rows; first += walk.chunk) {
    const int64_t count = std::min(walk.chunk, rows - first);
    walk_chunk(walk, buffer.narrow(0, 0, count).narrow(1, 0, vocab), first);
  }
}

/// Unit inner stride, as the products read it; what the engine passes has it.
at::Tensor rows_of(const at::Tensor& x) {
  return x.stride(1) == 1 || x.numel() == 0 ? x : x.contiguous();
}

bool takes_rows(const at::Tensor& dense_MD) {
  return dense_MD.size(1) * dense_MD.element_size() % 16 == 0;
}

kernels::GradientRows gradient_rows(const at::Tensor& in_MD, const at::Tensor& out_MD) {
  return {.in = in_MD.const_data_ptr(),
          .out = out_MD.mutable_data_ptr(),
          .rows = out_MD.size(0),
          .width = out_MD.size(1),
          .element = element_of(out_MD)};
}

at::Tensor scaled_rows(const at::Tensor& rows_MD, const at::Tensor& scale_M) {
  at::Tensor scaled_MD = at::empty_like(rows_MD);
  if (takes_rows(rows_MD)) {
    kernels::launch_scale_rows(gradient_rows(rows_MD, scaled_MD), scale_M.const_data_ptr<float>(),
                               c10::cuda::getCurrentCUDAStream());
  } else {
    at::mul_out(scaled_MD, rows_MD, scale_M.unsqueeze(1));
  }
  return scaled_MD;
}

/// Rows whose factor is another than the forward was told become NaN: the step's finite check finds them.
at::Tensor required_rows(const at::Tensor& rows_MD, const at::Tensor& found_M, const at::Tensor& expected_M) {
  if (takes_rows(rows_MD)) {
    kernels::launch_require_scale(gradient_rows(rows_MD, rows_MD), found_M.const_data_ptr<float>(),
                                  expected_M.const_data_ptr<float>(), c10::cuda::getCurrentCUDAStream());
    return rows_MD;
  }
  const at::Tensor differs_M = found_M.sub(expected_M).abs().le(expected_M.abs().mul(1e-4)).logical_not();
  return rows_MD.masked_fill(differs_M.unsqueeze(1), std::numeric_limits<float>::quiet_NaN());
}

class TokenLogProbsFunction final : public torch::autograd::Function<TokenLogProbsFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden_MD,
                            const at::Tensor& weight_VD, const at::Tensor& targets_M,
                            const TokenLogProbsOptions& options, bool hidden_wanted, bool weight_wanted) {
    const int64_t rows = hidden_MD.size(0);
    const bool weight_now = weight_wanted && options.row_scale_M.defined();
    std::optional<WeightGradient> weight_gradient;
    if (weight_now) weight_gradient.emplace(weight_VD, options.gradients, rows);
    Walk walk{.hidden_MD = rows_of(hidden_MD),
              .weight_VD = rows_of(weight_VD),
              .targets_M = targets_M.contiguous(),
              .scale_M = weight_now ? options.row_scale_M.contiguous() : at::Tensor(),
              .logp_M = at::empty({rows}, hidden_MD.options().dtype(at::kFloat)),
              .is_argmax_M = options.is_argmax_M,
              .weight_gradient = weight_gradient ? &*weight_gradient : nullptr,
              .chunk = chunk_rows(options, weight_VD, rows)};
    if (hidden_wanted)
      walk.hidden_gradient_MD =
          at::empty(hidden_MD.sizes(), hidden_MD.options(), at::MemoryFormat::Contiguous);
    walk_chunks(walk);
    const bool weight_later = weight_wanted && !weight_now;
    const auto later = [&](const at::Tensor& x) { return weight_later ? x : at::Tensor(); };
    // Tensors go through save_for_backward alone: it frees them after backward, saved_data does not.
    context->save_for_backward({walk.hidden_gradient_MD, later(hidden_MD), later(weight_VD), later(targets_M),
                                walk.scale_M, weight_gradient ? weight_gradient->for_tape() : at::Tensor()});
    context->saved_data["chunk"] = walk.chunk;
    context->saved_data["gradients"] = reinterpret_cast<int64_t>(options.gradients);
    return walk.logp_M;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    APUS_CHECK(!at::GradMode::is_enabled(), NotSupported,
               "token_log_probs has no second derivative; run backward without create_graph");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor scale_M = gradients[0].to(at::kFloat).contiguous();
    at::Tensor hidden_gradient_MD, weight_gradient_VD = saved[5];
    if (saved[0].defined()) {
      hidden_gradient_MD =
          saved[4].defined() ? required_rows(saved[0], scale_M, saved[4]) : scaled_rows(saved[0], scale_M);
    }
    if (saved[2].defined()) {
      WeightGradient weight_gradient(
          saved[2], reinterpret_cast<memory::GradSink*>(context->saved_data["gradients"].toInt()),  // NOLINT
          saved[1].size(0));
      walk_chunks({.hidden_MD = rows_of(saved[1]),
                   .weight_VD = rows_of(saved[2]),
                   .targets_M = saved[3].contiguous(),
                   .scale_M = scale_M,
                   .weight_gradient = &weight_gradient,
                   .chunk = context->saved_data["chunk"].toInt()});
      weight_gradient_VD = weight_gradient.for_tape();
    }
    return {hidden_gradient_MD, weight_gradient_VD, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& weight_VD,
                           const at::Tensor& targets_M, const TokenLogProbsOptions& options) {
  const bool tape = at::GradMode::is_enabled();
  return TokenLogProbsFunction::apply(hidden_MD, weight_VD, targets_M, options,
                                      tape && hidden_MD.requires_grad(), tape && weight_VD.requires_grad());
}

}  // namespace apus::ops::cuda
