#include <ATen/ops/empty.h>

#include "ops/cuda/joint_product.h"
#include "ops/gemm.h"

namespace apus::ops::cuda {
namespace {

at::Tensor detached(const at::Tensor& x) {
  return x.defined() ? x.detach() : x;
}

/// Takes a part into the run before it, if it lies behind that.
bool join(Run& run, const JointPart& part) {
  if (run.bias_O.defined() != part.bias_O.defined()) return false;
  const auto weight = stacked(run.weight_OD, part.weight_OD);
  const auto bias = run.bias_O.defined() ? stacked(run.bias_O, part.bias_O) : at::Tensor();
  if (!weight || !bias) return false;
  run.weight_OD = *weight;
  run.bias_O = *bias;
  ++run.parts;
  return true;
}

void forward_home(const at::Tensor& x_TD, const KeptJoint& kept, const at::Tensor& y_TO) {
  JointHome& home = *kept.options.home;
  if (kept.has_adapters) {
    home.load(kept.parts);
    fill_inner(home, x_TD);
  }
  if (kept.options.output_is_unread) return;
  const at::Tensor& residual = kept.options.residual_TO;
  Gemm product{.form = GemmForm::kNt, .beta = residual.defined() ? 1.0 : 0.0, .c = residual};
  if (!kept.has_adapters || home.options().layout == JointLayout::kFused) {
    product.a = kept.has_adapters ? with_room(x_TD, home.input_room()) : x_TD;
    product.b = kept.has_adapters ? home.weights_with_b() : home.weights();
    product.d = y_TO;
    product.bias_N = home.biases();
    gemm(product);
    return;
  }
  const at::Tensor roomy = with_room(x_TD, home.input_room());
  for (size_t part = 0; part < home.parts(); ++part) {
    const at::Tensor weight = home.weight_with_b(part);
    product.a = columns(roomy, part == 0 ? 0 : home.options().rank, weight.size(1));
    product.b = weight;
    product.d = columns(y_TO, home.first(part), weight.size(0));
    product.bias_N = home.bias(part);
    gemm(product);
  }
}

void weights_apart(const at::Tensor& x_TD, const KeptJoint& kept, const at::Tensor& y_TO) {
  const at::Tensor& residual = kept.options.residual_TO;
  for (const Run& run : runs_of(kept.parts)) {
    gemm({.form = GemmForm::kNt,
          .a = x_TD,
          .b = run.weight_OD,
          .d = columns(y_TO, run.first_column, run.weight_OD.size(0)),
          .beta = residual.defined() ? 1.0 : 0.0,
          .c = residual,
          .bias_N = run.bias_O});
  }
}

void forward_apart(const at::Tensor& x_TD, KeptJoint& kept, const at::Tensor& y_TO) {
  if (!kept.options.output_is_unread) weights_apart(x_TD, kept, y_TO);
  if (!kept.has_adapters) return;
  int64_t inner = 0, column = 0, first = 0;
  for (const JointPart& part : kept.parts) inner += rank_of(part);
  kept.inner_TR = at::empty({x_TD.size(0), inner}, x_TD.options());
  for (const JointPart& part : kept.parts) {
    const int64_t rank = rank_of(part), out = part.weight_OD.size(0);
    if (rank > 0) {
      const at::Tensor t_TR = columns(kept.inner_TR, column, rank);
      gemm({.form = GemmForm::kNt, .a = x_TD, .b = part.a_RD, .d = t_TR});
      if (!kept.options.output_is_unread)
        gemm({.form = GemmForm::kNt,
              .a = t_TR,
              .b = part.b_OR,
              .d = columns(y_TO, first, out),
              .alpha = part.scaling,
              .beta = 1.0});
    }
    column += rank;
    first += out;
  }
}

}  // namespace

std::optional<at::Tensor> stacked(const at::Tensor& above, const at::Tensor& below) {
  const bool adjoins = above.dim() == below.dim() && above.is_contiguous() && below.is_contiguous() &&
                       above.is_alias_of(below) && above.scalar_type() == below.scalar_type() &&
                       above.sizes().slice(1) == below.sizes().slice(1) &&
                       below.storage_offset() == above.storage_offset() + above.numel();
  if (!adjoins) return std::nullopt;
  std::vector<int64_t> sizes = above.sizes().vec();
  sizes[0] += below.size(0);
  return above.detach().as_strided(sizes, above.strides());
}

std::vector<Run> runs_of(const std::vector<JointPart>& parts) {
  std::vector<Run> runs;
  int64_t column = 0;
  for (size_t index = 0; index < parts.size(); ++index) {
    const JointPart& part = parts[index];
    if (runs.empty() || !join(runs.back(), part))
      runs.push_back({index, 1, column, part.weight_OD.detach(), detached(part.bias_O)});
    column += part.weight_OD.size(0);
  }
  return runs;
}

void fill_inner(const JointHome& home, const at::Tensor& x_TD) {
  const at::Tensor roomy = with_room(x_TD, home.input_room());
  const int64_t r = home.options().rank;
  if (home.options().layout == JointLayout::kFused) {
    gemm({.form = GemmForm::kNt,
          .a = x_TD,
          .b = home.a(),
          .d = columns(roomy, home.inner_column(0), home.inner_columns())});
    return;
  }
  for (size_t part = 0; part < home.parts(); ++part) {
    gemm({.form = GemmForm::kNt,
          .a = x_TD,
          .b = home.a().narrow(0, static_cast<int64_t>(part) * r, r),
          .d = columns(roomy, home.inner_column(part), r)});
  }
}

void joint_forward(const at::Tensor& x_TD, KeptJoint& kept, const at::Tensor& y_TO) {
  if (kept.in_home)
    forward_home(x_TD, kept, y_TO);
  else
    forward_apart(x_TD, kept, y_TO);
}

}  // namespace apus::ops::cuda
