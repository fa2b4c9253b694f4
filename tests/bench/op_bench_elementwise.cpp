// The fused element-wise kernels at 16k tokens of 7B shapes (and some of 0.5B), forward and backward, against
// the ATen twin. Bytes: each input read once, each output written once.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "apus/ops/activation.h"
#include "apus/ops/cast.h"
#include "apus/ops/dropout.h"
#include "apus/ops/norm.h"
#include "apus/ops/projection.h"
#include "apus/ops/rotary.h"
#include "ops/kernels/embedding.h"
#include "ops/twins.h"
#include "tests/bench/op_bench.h"

namespace apus::bench {
namespace {

using Tensors = std::vector<at::Tensor>;
using TapedOp = std::function<Tensors(const Tensors& inputs)>;

constexpr int64_t kTokens = 16384;
constexpr double kEps = 1e-6;

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions(at::kBFloat16).device(at::kCUDA));
}

at::Tensor leaf(at::Tensor x) {
  return x.set_requires_grad(true);
}

/// An operation with tape, its twin, and tensors for them.
struct Operation {
  std::string name;
  int64_t forward_bytes = 0, backward_bytes = 0;
  TapedOp fused, twin;
  /// Inputs, those that are trained as leaves.
  std::function<Tensors()> inputs;
};

/// One set of tensors, with the graph of the forward kept for backward's cases.
struct TapedSet {
  Tensors inputs, outputs, grads, trained;
};

TapedSet taped(const TapedOp& op, const Tensors& inputs) {
  TapedSet set{.inputs = inputs};
  set.outputs = op(inputs);
  for (const at::Tensor& output : set.outputs)
    set.grads.push_back(at::randn(output.sizes(), output.options()));
  for (const at::Tensor& input : inputs)
    if (input.requires_grad()) set.trained.push_back(input);
  return set;
}

std::function<void()> forward_of(const TapedOp& op, const std::shared_ptr<Rotation<Tensors>>& sets) {
  return [op, sets] {
    const at::NoGradGuard no_grad;
    op(sets->next());
  };
}

std::function<void()> backward_of(const std::shared_ptr<Rotation<TapedSet>>& sets) {
  return [sets] {
    const TapedSet& set = sets->next();
    torch::autograd::grad(set.outputs, set.trained, set.grads, /*retain_graph=*/true);
  };
}

void add(Suite& suite, const Operation& op) {
  suite.add(op.name.substr(0, op.name.find(' ')) + "/forward" + op.name.substr(op.name.find(' ')), [op] {
    const auto sets = make_rotation<Tensors>(op.forward_bytes, op.inputs);
    OpCase result;
    result.bytes = op.forward_bytes;
    result.run = forward_of(op.fused, sets);
    result.reference = forward_of(op.twin, sets);
    result.reference_name = "ATen twin";
    return result;
  });
  suite.add(op.name.substr(0, op.name.find(' ')) + "/backward" + op.name.substr(op.name.find(' ')), [op] {
    const auto made = [op](const TapedOp& taped_op) {
      return make_rotation<TapedSet>(op.backward_bytes, [=] { return taped(taped_op, op.inputs()); });
    };
    OpCase result;
    result.bytes = op.backward_bytes;
    result.run = backward_of(made(op.fused));
    result.reference = backward_of(made(op.twin));
    result.reference_name = "ATen twin";
    return result;
  });
}

void add_norm(Suite& suite, int64_t columns, bool trained) {
  const int64_t bytes = kTokens * columns * 2;
  add(suite, {.name = "rms_norm_residual " + std::to_string(kTokens) + "x" + std::to_string(columns) +
                      (trained ? " trained" : " frozen"),
              .forward_bytes = 2 * bytes,
              .backward_bytes = 4 * bytes,
              .fused =
                  [](const Tensors& in) {
                    const ops::ResidualRmsNorm both = ops::rms_norm_residual(in[0], in[1], kEps);
                    return Tensors{both.normed, both.passed};
                  },
              .twin =
                  [](const Tensors& in) {
                    return Tensors{ops::twin::rms_norm(in[0], in[1], kEps), at::alias(in[0])};
                  },
              .inputs =
                  [=] {
                    return Tensors{leaf(random({kTokens, columns})),
                                   trained ? leaf(random({columns})) : random({columns})};
                  }});
}

void add_sum_norm(Suite& suite, int64_t columns) {
  const int64_t bytes = kTokens * columns * 2;
  add(suite,
      {.name = "add_rms_norm " + std::to_string(kTokens) + "x" + std::to_string(columns),
       .forward_bytes = 4 * bytes,
       .backward_bytes = 4 * bytes,
       .fused =
           [](const Tensors& in) {
             const ops::AddRmsNorm both = ops::add_rms_norm(in[0], in[1], in[2], kEps);
             return Tensors{both.normed, both.sum};
           },
       .twin =
           [](const Tensors& in) {
             const at::Tensor sum = in[0] + in[1];
             return Tensors{ops::twin::rms_norm(sum, in[2], kEps), sum};
           },
       .inputs =
           [=] {
             return Tensors{leaf(random({kTokens, columns})), random({kTokens, columns}), random({columns})};
           }});
}

void add_swiglu(Suite& suite, int64_t width) {
  const int64_t bytes = kTokens * width * 2;
  add(suite, {.name = "swiglu_packed " + std::to_string(kTokens) + "x2x" + std::to_string(width),
              .forward_bytes = 3 * bytes,
              .backward_bytes = 5 * bytes,
              .fused = [](const Tensors& in) { return Tensors{ops::swiglu_packed(in[0])}; },
              .twin = [](const Tensors& in) { return Tensors{ops::twin::swiglu_packed(in[0])}; },
              .inputs =
                  [=] {
                    return Tensors{leaf(random({kTokens, 2 * width}))};
                  }});
}

void add_rotary(Suite& suite, const ops::QkvHeads& heads, bool normed, bool trained) {
  const int64_t row = heads.columns() * 2, tables = 2 * heads.head_dim * 2;
  const int64_t normed_row = (heads.heads + heads.kv_heads) * heads.head_dim * 2;
  const auto norm_of = [](const Tensors& in) {
    return in.size() > 3 ? ops::QkNorm{in[3], in[4], kEps} : ops::QkNorm{};
  };
  add(suite, {.name = std::string(normed ? "normed_" : "") + "rotary_qkv " + std::to_string(kTokens) + "x" +
                      std::to_string(heads.heads) + "/" + std::to_string(heads.kv_heads) + "x" +
                      std::to_string(heads.head_dim) + (trained ? " trained" : ""),
              .forward_bytes = kTokens * (2 * row + tables),
              .backward_bytes = kTokens * (2 * row + tables + (normed ? normed_row : 0)),
              .fused =
                  [=](const Tensors& in) {
                    const ops::Qkv made = ops::rotary_qkv(in[0], heads, in[1], in[2], norm_of(in));
                    return Tensors{made.q_TNH, made.k_TKH, made.v_TKH};
                  },
              .twin =
                  [=](const Tensors& in) {
                    const ops::Qkv made = ops::twin::rotary_qkv(in[0], heads, in[1], in[2], norm_of(in));
                    return Tensors{made.q_TNH, made.k_TKH, made.v_TKH};
                  },
              .inputs =
                  [=] {
                    Tensors made{leaf(random({kTokens, heads.columns()})), random({kTokens, heads.head_dim}),
                                 random({kTokens, heads.head_dim})};
                    for (int i = 0; normed && i < 2; ++i) {
                      const at::Tensor weight = random({heads.head_dim});
                      made.push_back(trained ? leaf(weight) : weight);
                    }
                    return made;
                  }});
}

/// Backward's bytes: dy read, the table's gradient written once.
void add_embedding(Suite& suite, int64_t vocab, int64_t columns) {
  const int64_t bytes = kTokens * columns * 2;
  add(suite, {.name = "embedding " + std::to_string(kTokens) + " of " + std::to_string(vocab) + "x" +
                      std::to_string(columns),
              .forward_bytes = 2 * bytes,
              .backward_bytes = bytes + vocab * columns * 2,
              .fused = [](const Tensors& in) { return Tensors{ops::embedding(in[0], in[1])}; },
              .twin = [](const Tensors& in) { return Tensors{in[1].index_select(0, in[0])}; },
              .inputs =
                  [=] {
                    const auto tokens = at::TensorOptions(at::kLong).device(at::kCUDA);
                    return Tensors{at::randint(0, vocab, {kTokens}, tokens), leaf(random({vocab, columns}))};
                  }});
}

void add_dropout(Suite& suite, int64_t columns) {
  suite.add("dropout/forward " + std::to_string(kTokens) + "x" + std::to_string(columns), [=] {
    auto rows = std::make_shared<ops::SampleRows>();
    for (uint32_t i = 0; i < kTokens; ++i) {
      rows->ordinals.push_back(i / 4096);
      rows->sides.push_back(0);
      rows->positions.push_back(i % 4096);
    }
    const int64_t bytes = 2 * kTokens * columns * 2;
    const auto sets = make_rotation<at::Tensor>(bytes, [=] { return random({kTokens, columns}); });
    OpCase op;
    op.bytes = bytes;
    op.run = [=] { ops::dropout(sets->next(), {.p = 0.05, .key = 7, .rows = rows}); };
    return op;
  });
}

void add_cast(Suite& suite, at::ScalarType from, at::ScalarType to) {
  constexpr int64_t kElements = int64_t{1} << 28;
  suite.add(std::string("cast/") + c10::toString(from) + " to " + c10::toString(to), [=] {
    const at::Tensor x = at::empty({kElements}, at::TensorOptions(from).device(at::kCUDA)).normal_();
    OpCase op;
    op.bytes = kElements * 6;
    op.run = [=] { ops::cast(x, to); };
    op.reference = [=] { x.to(to); };
    op.reference_name = "at::Tensor::to";
    return op;
  });
}

/// The additions alone, of sorted tokens into fp32: dy read, each token's row read and written.
void add_embedding_kernel(Suite& suite, int64_t vocab, int64_t columns) {
  suite.add(
      "embedding_kernel/backward " + std::to_string(kTokens) + " of " + std::to_string(vocab) + "x" +
          std::to_string(columns),
      [=] {
        const auto gpu = at::TensorOptions(at::kFloat).device(at::kCUDA);
        const at::Tensor tokens = at::randint(0, vocab, {kTokens}, gpu.dtype(at::kInt));
        const auto [sorted, positions] = at::sort(tokens, /*stable=*/true, 0, /*descending=*/false);
        const at::Tensor dy = random({kTokens, columns}), grad = at::zeros({vocab, columns}, gpu);
        const at::Tensor partials = at::empty({2 * kTokens / ops::kernels::kEmbeddingSegment, columns}, gpu);
        const int64_t distinct = sorted.diff().ne(0).sum().item<int64_t>() + 1;
        OpCase op;
        op.bytes = (kTokens * 2 + distinct * 8) * columns;
        op.run = [=, sorted = sorted, positions = positions] {
          ops::kernels::embedding_backward({.tokens = sorted.const_data_ptr<int32_t>(),
                                            .positions = positions.const_data_ptr<int64_t>(),
                                            .dy = dy.const_data_ptr(),
                                            .dy_stride = columns,
                                            .grad = grad.mutable_data_ptr(),
                                            .partials = partials.mutable_data_ptr<float>(),
                                            .rows = kTokens,
                                            .vocab = vocab,
                                            .columns = columns},
                                           ops::kernels::Element::kBf16, ops::kernels::Element::kFp32,
                                           c10::cuda::getCurrentCUDAStream().stream());
        };
        return op;
      });
}

}  // namespace

void add_elementwise_cases(Suite& suite) {
  for (const int64_t columns : {3584, 896, 5120}) add_norm(suite, columns, /*trained=*/false);
  for (const int64_t columns : {3584, 896}) add_norm(suite, columns, /*trained=*/true);
  add_sum_norm(suite, 3584);
  for (const int64_t width : {18944, 4864}) add_swiglu(suite, width);
  add_rotary(suite, {28, 4, 128}, /*normed=*/false, /*trained=*/false);
  add_rotary(suite, {14, 2, 64}, /*normed=*/false, /*trained=*/false);
  add_rotary(suite, {32, 8, 128}, /*normed=*/true, /*trained=*/false);
  add_rotary(suite, {32, 8, 128}, /*normed=*/true, /*trained=*/true);
  add_embedding(suite, 151936, 896);
  add_embedding(suite, 152064, 3584);
  add_embedding_kernel(suite, 151936, 896);
  add_embedding_kernel(suite, 152064, 3584);
  add_dropout(suite, 3584);
  add_cast(suite, at::kFloat, at::kBFloat16);
  add_cast(suite, at::kBFloat16, at::kFloat);
}

}  // namespace apus::bench
