// Projections of one input on a GPU. Two ways of computing them:
//   home   frozen weights in a JointHome, adapters beside them: per pass one thin product t = x A^T into the
//   room
//          beside x, then one product for base and adapter; backward likewise with u = dy s B beside dy.
//   apart  weights anywhere (trainable, gathered, or adapters that do not fit the home): a product a part,
//   the
//          adapter's added in place with beta = 1. Parts whose weights lie one behind another are one
//          product.
// Weight gradients are written where they are summed (GradSink::target), in fp32 or bf16, with beta 0 or 1.
#include "apus/ops/joint_linear.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "apus/base/error.h"
#include "apus/memory/grad_sink.h"
#include "ops/gemm.h"
#include "ops/joint_linear_cuda.h"
#include "ops/kernels/column_sum.h"
#include "ops/kernels/joint_home.h"

namespace apus::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::Element element_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::Element::kBf16 : kernels::Element::kFp32;
}

/// Which variable of the tape's node an operand is; -1 = it is undefined.
struct PartSlots {
  int weight = -1, bias = -1, a = -1, b = -1;
};

/// A joint product as the tape keeps it.
struct KeptJoint final : torch::CustomClassHolder {
  std::vector<JointPart> parts;
  JointLinearOptions options;
  std::vector<PartSlots> slots;
  int x_slot = -1, residual_slot = -1;
  bool in_home = false;
  bool has_adapters = false;
  at::Tensor inner_TR;  ///< t of all adapters, where it does not lie beside x

  const JointHome& home() const { return *options.home; }
};

/// Columns of the packed output that belong to a part or a run of them.
at::Tensor columns(const at::Tensor& y_TO, int64_t first, int64_t count) {
  return y_TO.narrow(1, first, count);
}

// --- Weights that lie one behind another.

/// Neighbouring parts that are one product.
struct Run {
  size_t first_part = 0;
  size_t parts = 1;
  int64_t first_column = 0;
  at::Tensor weight_OD;
  at::Tensor bias_O;
};

/// The matrices as one, if the second begins where the first ends.
std::optional<at::Tensor> stacked(const at::Tensor& above, const at::Tensor& below) {
  const bool adjoins = above.is_contiguous() && below.is_contiguous() && above.is_alias_of(below) &&
                       above.scalar_type() == below.scalar_type() && above.size(1) == below.size(1) &&
                       below.storage_offset() == above.storage_offset() + above.numel();
  if (!adjoins) return std::nullopt;
  return above.detach().as_strided({above.size(0) + below.size(0), above.size(1)}, above.strides());
}

std::vector<Run> runs_of(const std::vector<JointPart>& parts) {
  std::vector<Run> runs;
  int64_t column = 0;
  for (size_t index = 0; index < parts.size(); ++index) {
    const JointPart& part = parts[index];
    std::optional<at::Tensor> joined;
    if (!runs.empty() && !runs.back().bias_O.defined() && !part.bias_O.defined())
      joined = stacked(runs.back().weight_OD, part.weight_OD);
    if (joined) {
      runs.back().weight_OD = *joined;
      ++runs.back().parts;
    } else {
      runs.push_back({index, 1, column, part.weight_OD.detach(), part.bias_O});
    }
    column += part.weight_OD.size(0);
  }
  return runs;
}

// --- Forward.

int64_t out_columns(const std::vector<JointPart>& parts) {
  int64_t sum = 0;
  for (const JointPart& part : parts) sum += part.weight_OD.size(0);
  return sum;
}

int64_t rank_of(const JointPart& part) {
  return part.has_adapter() ? part.a_RD.size(0) : 0;
}

/// t = x A^T of all parts, into the room beside x.
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

void forward_home(const at::Tensor& x_TD, const KeptJoint& kept, const at::Tensor& y_TO) {
  JointHome& home = *kept.options.home;
  const at::Tensor& residual = kept.options.residual_TO;
  Gemm product{.form = GemmForm::kNt, .beta = residual.defined() ? 1.0 : 0.0, .c = residual};
  if (!kept.has_adapters || home.options().layout == JointLayout::kFused) {
    if (kept.has_adapters) {
      home.load(kept.parts);
      fill_inner(home, x_TD);
    }
    product.a = kept.has_adapters ? with_room(x_TD, home.input_room()) : x_TD;
    product.b = kept.has_adapters ? home.weights_with_b() : home.weights();
    product.d = y_TO;
    product.bias_N = home.biases();
    gemm(product);
    return;
  }
  home.load(kept.parts);
  fill_inner(home, x_TD);
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

void forward_apart(const at::Tensor& x_TD, KeptJoint& kept, const at::Tensor& y_TO) {
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
  if (!kept.has_adapters) return;
  int64_t inner = 0, column = 0, first = 0;
  for (const JointPart& part : kept.parts) inner += rank_of(part);
  kept.inner_TR = at::empty({x_TD.size(0), inner}, x_TD.options());
  for (const JointPart& part : kept.parts) {
    const int64_t rank = rank_of(part), out = part.weight_OD.size(0);
    if (rank > 0) {
      const at::Tensor t_TR = columns(kept.inner_TR, column, rank);
      gemm({.form = GemmForm::kNt, .a = x_TD, .b = part.a_RD, .d = t_TR});
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

// --- Backward.

/// Where a parameter's gradient goes: into the sink's buffer, or into a tensor for the tape.
struct Destination {
  at::Tensor grad;
  double beta = 0.0;
  bool is_direct = false;

  at::Tensor for_tape() const { return is_direct ? at::Tensor() : grad; }

  /// Puts or adds values of another dtype.
  void take(const at::Tensor& values) {
    if (beta == 0.0)
      grad.copy_(values);
    else
      grad.add_(values);
  }
};

Destination destination_of(const at::Tensor& parameter, memory::GradSink* sink) {
  if (sink) {
    if (const auto target = sink->target(parameter))
      return {target->grad, target->is_fresh ? 0.0 : 1.0, true};
  }
  return {at::empty(parameter.sizes(), parameter.options()), 0.0, false};
}

/// into += alpha a^T b.
void add_product(Destination& into, const at::Tensor& a, const at::Tensor& b, double alpha = 1.0) {
  const at::ScalarType type = into.grad.scalar_type();
  if (type == a.scalar_type() || type == at::kFloat) {
    gemm({.form = GemmForm::kTn, .a = a, .b = b, .d = into.grad, .alpha = alpha, .beta = into.beta});
    return;
  }
  const at::Tensor values = at::empty(into.grad.sizes(), into.grad.options().dtype(at::kFloat));
  gemm({.form = GemmForm::kTn, .a = a, .b = b, .d = values, .alpha = alpha});
  into.take(values);
}

/// into += the sums of dy's columns.
void add_column_sums(Destination& into, const at::Tensor& dy_TO) {
  const auto fp32 = dy_TO.options().dtype(at::kFloat);
  const at::Tensor partial = at::empty({kernels::column_sum_chunks(dy_TO.size(0)), dy_TO.size(1)}, fp32);
  kernels::column_sum({.x = dy_TO.const_data_ptr(),
                       .rows = dy_TO.size(0),
                       .columns = dy_TO.size(1),
                       .row_stride = dy_TO.stride(0),
                       .element = element_of(dy_TO),
                       .partial = partial.mutable_data_ptr<float>(),
                       .sum = into.grad.mutable_data_ptr(),
                       .sum_element = element_of(into.grad),
                       .adds = into.beta != 0.0},
                      c10::cuda::getCurrentCUDAStream());
}

/// One backward of a joint product.
class Backward final {
 public:
  Backward(AutogradContext* context, const KeptJoint& kept, at::Tensor x_TD, const at::Tensor& dy_TO,
           variable_list& result)
      : context_(context), kept_(kept), x_TD_(std::move(x_TD)), dy_TO_(dy_TO), result_(result) {
    if (dy_TO_.stride(1) != 1 || dy_TO_.stride(0) < dy_TO_.size(1)) dy_TO_ = dy_TO_.contiguous();
  }

  void run() {
    if (kept_.in_home)
      in_home();
    else
      apart();
  }

 private:
  bool wants(int slot) const { return slot >= 0 && context_->needs_input_grad(static_cast<size_t>(slot)); }

  void give(int slot, const at::Tensor& grad) { result_[static_cast<size_t>(slot)] = grad; }

  at::Tensor new_dx() {
    at::Tensor dx_TD = at::empty({dy_TO_.size(0), kept_.parts[0].weight_OD.size(1)}, dy_TO_.options());
    give(kept_.x_slot, dx_TD);
    return dx_TD;
  }

  void in_home() {
    if (kept_.has_adapters) {
      adapters_in_home();
    } else if (wants(kept_.x_slot)) {
      gemm({.form = GemmForm::kNn, .a = dy_TO_, .b = kept_.home().weights(), .d = new_dx()});
    }
  }

  /// u = dy s B beside dy, then dx from both.
  void adapters_in_home() {
    JointHome& home = *kept_.options.home;
    if (!home.is_loaded(kept_.parts)) home.load(kept_.parts);
    const RowRoom room = home.grad_room();
    if (!has_room(dy_TO_, room)) {
      at::Tensor roomy_TO = empty_with_room(dy_TO_.size(0), dy_TO_.size(1), room, dy_TO_.options());
      roomy_TO.copy_(dy_TO_);
      dy_TO_ = roomy_TO;
    }
    const at::Tensor dy_and_u = with_room(dy_TO_, room);
    const at::Tensor u_TR = columns(dy_and_u, home.out_columns(), home.inner_columns());
    fill_u(home, u_TR);
    if (wants(kept_.x_slot))
      gemm({.form = GemmForm::kNn, .a = dy_and_u, .b = home.weights_and_a(), .d = new_dx()});
    if (kept_.options.remake_x) fill_inner(home, x_TD_);
    add_a_in_home(home, u_TR);
    const at::Tensor roomy_x = with_room(x_TD_, home.input_room());
    for (size_t part = 0; part < home.parts(); ++part) {
      const at::Tensor t_TR = columns(roomy_x, home.inner_column(part), rank_of(kept_.parts[part]));
      add_b(part, columns(dy_TO_, home.first(part), home.options().out_features[part]), t_TR);
    }
  }

  void fill_u(const JointHome& home, const at::Tensor& u_TR) {
    if (home.options().layout == JointLayout::kFused) {
      gemm({.form = GemmForm::kNn, .a = dy_TO_, .b = home.scaled_b(), .d = u_TR});
      return;
    }
    const int64_t r = home.options().rank;
    for (size_t part = 0; part < home.parts(); ++part) {
      gemm({.form = GemmForm::kNn,
            .a = columns(dy_TO_, home.first(part), home.options().out_features[part]),
            .b = home.scaled_b(part),
            .d = columns(u_TR, static_cast<int64_t>(part) * r, r)});
    }
  }

  /// dA = u^T x: of a single part in place, of several in one product that reads x once.
  void add_a_in_home(const JointHome& home, const at::Tensor& u_TR) {
    std::vector<size_t> wanted;
    for (size_t part = 0; part < home.parts(); ++part)
      if (wants(kept_.slots[part].a)) wanted.push_back(part);
    if (wanted.empty()) return;
    if (home.parts() == 1) {
      add_a(0, columns(u_TR, 0, rank_of(kept_.parts[0])));
      return;
    }
    const at::Tensor all = at::empty({u_TR.size(1), x_TD_.size(1)}, x_TD_.options().dtype(at::kFloat));
    gemm({.form = GemmForm::kTn, .a = u_TR, .b = x_TD_, .d = all});
    for (const size_t part : wanted) {
      Destination into = destination_of(kept_.parts[part].a_RD, kept_.options.gradients);
      into.take(all.narrow(0, static_cast<int64_t>(part) * home.options().rank, rank_of(kept_.parts[part])));
      give(kept_.slots[part].a, into.for_tape());
    }
  }

  void add_a(size_t part, const at::Tensor& u_TR) {
    if (!wants(kept_.slots[part].a)) return;
    Destination into = destination_of(kept_.parts[part].a_RD, kept_.options.gradients);
    add_product(into, u_TR, x_TD_);
    give(kept_.slots[part].a, into.for_tape());
  }

  /// dB = s dy^T t.
  void add_b(size_t part, const at::Tensor& dy_TO, const at::Tensor& t_TR) {
    if (!wants(kept_.slots[part].b)) return;
    Destination into = destination_of(kept_.parts[part].b_OR, kept_.options.gradients);
    add_product(into, dy_TO, t_TR, kept_.parts[part].scaling);
    give(kept_.slots[part].b, into.for_tape());
  }

  void apart() {
    at::Tensor dx_TD = wants(kept_.x_slot) ? new_dx() : at::Tensor();
    double beta = 0.0;
    const auto add_dx = [&](const at::Tensor& dy, const at::Tensor& weight) {
      if (dx_TD.defined()) gemm({.form = GemmForm::kNn, .a = dy, .b = weight, .d = dx_TD, .beta = beta});
      beta = 1.0;
    };
    for (const Run& run : runs_of(kept_.parts)) {
      const at::Tensor dy_TO = columns(dy_TO_, run.first_column, run.weight_OD.size(0));
      add_dx(dy_TO, run.weight_OD);
      add_weights(run, dy_TO);
    }
    int64_t first = 0, column = 0;
    for (size_t index = 0; index < kept_.parts.size(); ++index) {
      const JointPart& part = kept_.parts[index];
      const at::Tensor dy_TO = columns(dy_TO_, first, part.weight_OD.size(0));
      add_bias(index, dy_TO);
      if (part.has_adapter()) {
        const at::Tensor u_TR = at::empty({dy_TO.size(0), rank_of(part)}, dy_TO.options());
        gemm({.form = GemmForm::kNn, .a = dy_TO, .b = part.b_OR, .d = u_TR, .alpha = part.scaling});
        add_dx(u_TR, part.a_RD);
        add_a(index, u_TR);
        add_b(index, dy_TO, columns(kept_.inner_TR, column, rank_of(part)));
      }
      first += part.weight_OD.size(0);
      column += rank_of(part);
    }
  }

  /// dW = dy^T x of each part; of all at once where their gradients lie as their weights do.
  void add_weights(const Run& run, const at::Tensor& dy_TO) {
    std::vector<Destination> into;
    std::optional<at::Tensor> joined;
    for (size_t part = run.first_part; part < run.first_part + run.parts; ++part) {
      if (!wants(kept_.slots[part].weight)) continue;
      into.push_back(destination_of(kept_.parts[part].weight_OD, kept_.options.gradients));
      if (into.size() == 1)
        joined = into[0].grad;
      else if (joined && into.back().beta == into[0].beta)
        joined = stacked(*joined, into.back().grad);
      else
        joined.reset();
      give(kept_.slots[part].weight, into.back().for_tape());
    }
    if (into.empty()) return;
    if (joined && into.size() == run.parts) {
      Destination whole{*joined, into[0].beta, true};
      add_product(whole, dy_TO, x_TD_);
      return;
    }
    size_t next = 0;
    for (size_t part = run.first_part, column = 0; part < run.first_part + run.parts; ++part) {
      const int64_t out = kept_.parts[part].weight_OD.size(0);
      if (wants(kept_.slots[part].weight))
        add_product(into[next++], columns(dy_TO, static_cast<int64_t>(column), out), x_TD_);
      column += static_cast<size_t>(out);
    }
  }

  void add_bias(size_t part, const at::Tensor& dy_TO) {
    if (!wants(kept_.slots[part].bias)) return;
    Destination into = destination_of(kept_.parts[part].bias_O, kept_.options.gradients);
    add_column_sums(into, dy_TO);
    give(kept_.slots[part].bias, into.for_tape());
  }

  AutogradContext* context_;
  const KeptJoint& kept_;
  at::Tensor x_TD_, dy_TO_;
  variable_list& result_;
};

/// Whether a gradient of some weight reads x.
bool reads_x(const KeptJoint& kept) {
  if (kept.has_adapters) return true;
  for (const JointPart& part : kept.parts)
    if (part.weight_OD.requires_grad()) return true;
  return false;
}

class JointLinearFunction final : public torch::autograd::Function<JointLinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, at::TensorList variables,
                            const c10::intrusive_ptr<KeptJoint>& kept) {
    const at::Tensor& x_TD = variables[static_cast<size_t>(kept->x_slot)];
    const c10::cuda::CUDAGuard guard(x_TD.device());
    at::Tensor y_TO = at::empty({x_TD.size(0), out_columns(kept->parts)}, x_TD.options());
    if (x_TD.size(0) > 0) {
      if (kept->in_home)
        forward_home(x_TD, *kept, y_TO);
      else
        forward_apart(x_TD, *kept, y_TO);
    }
    kept->options.residual_TO.reset();
    if (!kept->options.remake_x && reads_x(*kept)) context->save_for_backward({x_TD});
    context->saved_data["joint"] = c10::IValue::make_capsule(kept);
    context->saved_data["variables"] = static_cast<int64_t>(variables.size());
    return y_TO;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    APUS_CHECK(!at::GradMode::is_enabled(), NotSupported,
               "joint_linear has no second derivative; run backward without create_graph");
    const auto kept =
        c10::static_intrusive_pointer_cast<KeptJoint>(context->saved_data.at("joint").toCapsule());
    variable_list result(static_cast<size_t>(context->saved_data.at("variables").toInt()) + 1);
    context->saved_data.clear();
    const at::Tensor& dy_TO = grads[0];
    const c10::cuda::CUDAGuard guard(dy_TO.device());
    if (kept->residual_slot >= 0) result[static_cast<size_t>(kept->residual_slot)] = dy_TO;
    at::Tensor x_TD;
    if (kept->options.remake_x) {
      if (reads_x(*kept)) x_TD = kept->options.remake_x();
    } else {
      const variable_list saved = context->get_saved_variables();
      if (!saved.empty()) x_TD = saved[0];
    }
    if (dy_TO.size(0) > 0) {
      Backward(context, *kept, x_TD, dy_TO, result).run();
    } else if (context->needs_input_grad(static_cast<size_t>(kept->x_slot))) {
      result[static_cast<size_t>(kept->x_slot)] =
          at::empty({0, kept->parts[0].weight_OD.size(1)}, dy_TO.options());
    }
    return result;
  }
};

/// Whether the parts are computed in their home.
bool lies_in_home(const at::Tensor& x_TD, const KeptJoint& kept) {
  const JointHome* home = kept.options.home.get();
  if (!home || home->parts() != kept.parts.size() || home->options().dtype != x_TD.scalar_type())
    return false;
  for (const JointPart& part : kept.parts) {
    const bool frozen =
        !part.weight_OD.requires_grad() &&
        (!part.bias_O.defined() || (!part.bias_O.requires_grad() && home->holds(part.bias_O)));
    if (!frozen || !home->holds(part.weight_OD)) return false;
  }
  return !kept.has_adapters || (home->fits(kept.parts) && has_room(x_TD, home->input_room()));
}

}  // namespace

at::Tensor cuda::joint_linear(const at::Tensor& x_TD, const std::vector<JointPart>& parts,
                              const JointLinearOptions& options) {
  auto kept = c10::make_intrusive<KeptJoint>();
  kept->parts = parts;
  kept->options = options;
  std::vector<at::Tensor> variables;
  const auto slot_of = [&](const at::Tensor& operand) {
    if (!operand.defined()) return -1;
    variables.push_back(operand);
    return static_cast<int>(variables.size()) - 1;
  };
  kept->x_slot = slot_of(x_TD);
  kept->residual_slot = slot_of(options.residual_TO);
  for (const JointPart& part : parts) {
    kept->has_adapters = kept->has_adapters || part.has_adapter();
    kept->slots.push_back({.weight = slot_of(part.weight_OD),
                           .bias = slot_of(part.bias_O),
                           .a = slot_of(part.a_RD),
                           .b = slot_of(part.b_OR)});
  }
  kept->in_home = lies_in_home(x_TD, *kept);
  return JointLinearFunction::apply(at::TensorList(variables), kept);
}

bool cuda::load_home(const std::vector<HomeSegment>& segments) {
  kernels::HomeAdapters adapters{.count = static_cast<int>(segments.size())};
  if (segments.empty() || segments.size() > kernels::HomeAdapters::kMost) return false;
  const at::Tensor& first = segments[0].a_into;
  adapters.in = first.size(1);
  adapters.room = first.size(0);
  adapters.row_stride = first.stride(0);
  bool aligned = adapters.in % 8 == 0 && adapters.row_stride % 8 == 0;
  const auto address_of = [&](const at::Tensor& x) {
    void* address = x.defined() ? const_cast<void*>(x.const_data_ptr()) : nullptr;
    aligned = aligned && reinterpret_cast<uintptr_t>(address) % 16 == 0;
    return address;
  };
  for (size_t index = 0; index < segments.size(); ++index) {
    const HomeSegment& segment = segments[index];
    adapters.parts[index] = {.a = address_of(segment.a_RD),
                             .b = address_of(segment.b_OR),
                             .a_into = address_of(segment.a_into),
                             .b_into = address_of(segment.b_into),
                             .rank = segment.a_RD.defined() ? segment.a_RD.size(0) : 0,
                             .out = segment.b_into.size(0),
                             .scaling = static_cast<float>(segment.scaling)};
  }
  if (!aligned) return false;
  const c10::cuda::CUDAGuard guard(first.device());
  kernels::load_home(adapters, element_of(first), c10::cuda::getCurrentCUDAStream());
  return true;
}

}  // namespace apus::ops
