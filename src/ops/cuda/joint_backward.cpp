#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>

#include <utility>

#include "apus/memory/grad_sink.h"
#include "ops/cuda/joint_product.h"
#include "ops/gemm.h"
#include "ops/kernels/column_sum.h"

namespace apus::ops::cuda {
namespace {

kernels::Element element_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::Element::kBf16 : kernels::Element::kFp32;
}

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
  Backward(const KeptJoint& kept, const std::vector<char>& wanted, at::Tensor x_TD, const at::Tensor& dy_TO)
      : kept_(kept), wanted_(wanted), x_TD_(std::move(x_TD)), dy_TO_(dy_TO), result_(wanted.size()) {
    if (dy_TO_.stride(1) != 1 || dy_TO_.stride(0) < dy_TO_.size(1)) dy_TO_ = dy_TO_.contiguous();
  }

  std::vector<at::Tensor> run() {
    if (kept_.in_home)
      in_home();
    else
      apart();
    return std::move(result_);
  }

 private:
  bool wants(int slot) const { return slot >= 0 && wanted_[static_cast<size_t>(slot)] != 0; }

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
      add_biases(run, dy_TO);
    }
    int64_t first = 0, column = 0;
    for (size_t index = 0; index < kept_.parts.size(); ++index) {
      const JointPart& part = kept_.parts[index];
      const at::Tensor dy_TO = columns(dy_TO_, first, part.weight_OD.size(0));
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

  /// Where gradients of a run's parameters go, with their columns of dy: in one piece where they lie as the
  /// parameters do, else part by part.
  struct Piece {
    Destination into;
    int64_t first = 0, count = 0;
  };
  std::vector<Piece> pieces(const Run& run, at::Tensor JointPart::*parameter, int PartSlots::*slot) {
    std::vector<Piece> pieces;
    for (size_t part = run.first_part, first = 0; part < run.first_part + run.parts; ++part) {
      const int64_t count = kept_.parts[part].weight_OD.size(0);
      if (wants(kept_.slots[part].*slot)) {
        pieces.push_back({destination_of(kept_.parts[part].*parameter, kept_.options.gradients),
                          static_cast<int64_t>(first), count});
        give(kept_.slots[part].*slot, pieces.back().into.for_tape());
      }
      first += static_cast<size_t>(count);
    }
    for (size_t last = pieces.size(); last-- > 1;) {
      Piece &above = pieces[last - 1], &below = pieces[last];
      const auto joined = above.into.beta == below.into.beta && above.first + above.count == below.first
                              ? stacked(above.into.grad, below.into.grad)
                              : std::nullopt;
      if (!joined) continue;
      above.into.grad = *joined;
      above.count += below.count;
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(last));
    }
    return pieces;
  }

  /// dW = dy^T x.
  void add_weights(const Run& run, const at::Tensor& dy_TO) {
    for (Piece& piece : pieces(run, &JointPart::weight_OD, &PartSlots::weight))
      add_product(piece.into, columns(dy_TO, piece.first, piece.count), x_TD_);
  }

  void add_biases(const Run& run, const at::Tensor& dy_TO) {
    for (Piece& piece : pieces(run, &JointPart::bias_O, &PartSlots::bias))
      add_column_sums(piece.into, columns(dy_TO, piece.first, piece.count));
  }

  const KeptJoint& kept_;
  const std::vector<char>& wanted_;
  at::Tensor x_TD_, dy_TO_;
  std::vector<at::Tensor> result_;
};

}  // namespace

std::vector<at::Tensor> joint_backward(const KeptJoint& kept, const std::vector<char>& wanted,
                                       const at::Tensor& x_TD, const at::Tensor& dy_TO) {
  return Backward(kept, wanted, x_TD, dy_TO).run();
}

}  // namespace apus::ops::cuda
