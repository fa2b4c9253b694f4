// The tape around the embedding's kernels. Backward sorts the micro-batch's tokens, so that rows of one token
// are neighbours, and adds them into the table's gradient: the sink's buffer if there is one, else a new one.
// A gradient that holds nothing yet is not cleared first: its rows without tokens are, beside the sort.
#include "ops/embedding_cuda.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <tuple>

#include "apus/memory/grad_sink.h"
#include "ops/cuda/kernel_operands.h"
#include "ops/kernels/embedding.h"
#include "ops/kernels/token_sort.h"

namespace apus::ops::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Whether rows of the gradient can be added to as they lie.
bool takes_gradient(const at::Tensor& grad_VD, const at::Tensor& dy_TD) {
  const bool wide_enough =
      grad_VD.scalar_type() == at::kFloat || grad_VD.scalar_type() == dy_TD.scalar_type();
  return is_kernel_tensor(grad_VD) && wide_enough && grad_VD.is_contiguous() &&
         kernel_rows(grad_VD).is_same(grad_VD);
}

/// Whether a gradient holds sums already.
enum class Holds { kSums, kNothing };

/// Tokens in ascending order, int32, and the row of each, int64.
struct Sorted {
  at::Tensor tokens_T, positions_T;
};

/// Sorts, and clears the rows of a gradient that holds nothing as far as no token has them.
Sorted sorted(const at::Tensor& tokens_T, const at::Tensor& grad_VD, Holds holds) {
  const int64_t rows = tokens_T.size(0), vocab = grad_VD.size(0);
  const bool clears = holds == Holds::kNothing;
  if (kernels::sorts_tokens(rows, vocab)) {
    const Sorted made{at::empty({rows}, tokens_T.options().dtype(at::kInt)),
                      at::empty({rows}, tokens_T.options())};
    kernels::sort_tokens({.tokens = tokens_T.const_data_ptr<int64_t>(),
                          .sorted = made.tokens_T.mutable_data_ptr<int32_t>(),
                          .positions = made.positions_T.mutable_data_ptr<int64_t>(),
                          .rows = rows,
                          .vocab = vocab,
                          .grad = clears ? grad_VD.mutable_data_ptr() : nullptr,
                          .row_bytes = grad_VD.size(1) * static_cast<int64_t>(grad_VD.element_size())},
                         stream_of(tokens_T));
    return made;
  }
  if (clears) grad_VD.zero_();
  // 32 bits sort in half the passes of 64; what is outside the table stays outside.
  const at::Tensor keys_T = tokens_T.clamp(-1, vocab).to(at::kInt);
  auto [sorted_T, positions_T] = at::sort(keys_T, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  return {std::move(sorted_T), std::move(positions_T)};
}

/// grad[token] += its rows of dy; all of grad is written if it holds nothing.
void add_rows(const at::Tensor& tokens_T, const at::Tensor& given_TD, const at::Tensor& grad_VD,
              Holds holds) {
  const at::Tensor dy_TD = kernel_rows(given_TD);
  const int64_t rows = dy_TD.size(0), columns = dy_TD.size(1);
  if (rows == 0) {
    if (holds == Holds::kNothing) grad_VD.zero_();
    return;
  }
  const auto [sorted_T, positions_T] = sorted(tokens_T, grad_VD, holds);
  const int64_t segments = (rows + kernels::kEmbeddingSegment - 1) / kernels::kEmbeddingSegment;
  const at::Tensor partials = at::empty({2 * segments, columns}, dy_TD.options().dtype(at::kFloat));
  kernels::embedding_backward({.tokens = sorted_T.const_data_ptr<int32_t>(),
                               .positions = positions_T.const_data_ptr<int64_t>(),
                               .dy = dy_TD.const_data_ptr(),
                               .dy_stride = row_stride(dy_TD),
                               .grad = grad_VD.mutable_data_ptr(),
                               .is_fresh = holds == Holds::kNothing,
                               .partials = partials.mutable_data_ptr<float>(),
                               .rows = rows,
                               .vocab = grad_VD.size(0),
                               .columns = columns},
                              element_of(dy_TD), element_of(grad_VD), stream_of(dy_TD));
}

class Embedded final : public torch::autograd::Function<Embedded> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given_T, const at::Tensor& weight_VD,
                            memory::GradSink* gradients) {
    const at::Tensor tokens_T = given_T.contiguous(), table_VD = kernel_rows(weight_VD.contiguous());
    context->save_for_backward({tokens_T, weight_VD});
    context->saved_data["sink"] = reinterpret_cast<int64_t>(gradients);
    at::Tensor out_TD = at::empty({tokens_T.size(0), table_VD.size(1)}, table_VD.options());
    if (tokens_T.size(0) > 0)
      kernels::embedding_forward({.tokens = tokens_T.const_data_ptr<int64_t>(),
                                  .table = table_VD.const_data_ptr(),
                                  .out = out_TD.mutable_data_ptr(),
                                  .rows = tokens_T.size(0),
                                  .vocab = table_VD.size(0),
                                  .columns = table_VD.size(1)},
                                 element_of(table_VD), stream_of(table_VD));
    return out_TD;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("embedding");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &tokens_T = saved[0], &weight_VD = saved[1];
    auto* sink = reinterpret_cast<memory::GradSink*>(context->saved_data.at("sink").toInt());
    if (sink != nullptr) {
      if (const auto target = sink->target(weight_VD)) {
        add_into(*target, tokens_T, grads[0]);
        return {{}, {}, {}};
      }
    }
    at::Tensor grad_VD = at::empty(weight_VD.sizes(), weight_VD.options());
    add_rows(tokens_T, grads[0], grad_VD, Holds::kNothing);
    return {{}, grad_VD, {}};
  }

 private:
  static void add_into(const memory::GradTarget& target, const at::Tensor& tokens_T,
                       const at::Tensor& dy_TD) {
    if (takes_gradient(target.grad, dy_TD)) {
      add_rows(tokens_T, dy_TD, target.grad, target.is_fresh ? Holds::kNothing : Holds::kSums);
      return;
    }
    if (target.is_fresh) target.grad.zero_();
    target.grad.index_add_(0, tokens_T, dy_TD.to(target.grad.scalar_type()));
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens_T, const at::Tensor& weight_VD, memory::GradSink* gradients) {
  const c10::cuda::CUDAGuard device(weight_VD.device());
  return Embedded::apply(tokens_T, weight_VD, gradients);
}

}  // namespace apus::ops::cuda
