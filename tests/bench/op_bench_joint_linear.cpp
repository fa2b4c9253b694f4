#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "apus/ops/joint_linear.h"
#include "ops/gemm.h"
#include "tests/bench/op_bench.h"

namespace apus::bench {
namespace {

using torch::autograd::variable_list;

constexpr int64_t kRank = 64, kModel = 3584, kKv = 512, kFeed = 18944;

at::Tensor random(at::IntArrayRef shape) {
  at::Generator generator = at::cuda::detail::createCUDAGenerator();
  generator.set_current_seed(static_cast<uint64_t>(shape[0] * 31 + shape[1]));
  return at::randn(shape, generator, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16)) * 0.05;
}

enum class Grads { kNone, kInput, kAll };

/// One of the layer's joint projections with an adapter, and the bare products that it is compared with.
struct Projection {
  std::shared_ptr<ops::JointHome> home;
  std::vector<ops::JointPart> parts;
  at::Tensor x, dy;            ///< in rows with room
  at::Tensor bare_x, bare_dx;  ///< dense
  std::vector<at::Tensor> bare_weights, bare_y;

  Projection(int64_t rows, int64_t in, std::vector<int64_t> outs, ops::JointLayout layout, Grads grads) {
    home = std::make_shared<ops::JointHome>(ops::JointHomeOptions{
        .in_features = in, .out_features = outs, .rank = kRank, .layout = layout, .device = at::kCUDA});
    int64_t out = 0;
    for (size_t i = 0; i < outs.size(); ++i) {
      out += outs[i];
      bare_weights.push_back(random({outs[i], in}));
      bare_y.push_back(random({rows, outs[i]}));
      home->weight(i).copy_(bare_weights[i]);
      ops::JointPart part{.weight_OD = home->weight(i),
                          .a_RD = random({kRank, in}),
                          .b_OR = random({outs[i], kRank}),
                          .scaling = 2.0};
      part.a_RD.set_requires_grad(grads == Grads::kAll);
      part.b_OR.set_requires_grad(grads == Grads::kAll);
      parts.push_back(part);
    }
    const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
    x = ops::empty_with_room(rows, in, home->input_room(), options);
    x.copy_(random({rows, in}));
    x.set_requires_grad(grads != Grads::kNone);
    dy = ops::empty_with_room(rows, out, home->grad_room(), options);
    dy.copy_(random({rows, out}));
    bare_x = random({rows, in});
    bare_dx = random({rows, in});
  }

  void run(Grads grads) const {
    if (grads == Grads::kNone) {
      const at::NoGradGuard no_grad;
      ops::joint_linear(x, parts, {.home = home});
      return;
    }
    variable_list inputs = {x};
    if (grads == Grads::kAll)
      for (const ops::JointPart& part : parts) inputs.insert(inputs.end(), {part.a_RD, part.b_OR});
    torch::autograd::grad({ops::joint_linear(x, parts, {.home = home})}, inputs, {dy});
  }

  void run_bare(Grads grads) const {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < bare_weights.size(); ++i) {
      at::Tensor y = bare_y[i], dx = bare_dx;
      at::mm_out(y, bare_x, bare_weights[i].t());
      if (grads != Grads::kNone) at::mm_out(dx, bare_y[i], bare_weights[i]);
    }
  }
};

OpCase layer_case(int64_t rows, Grads grads) {
  auto layer = std::make_shared<std::vector<Projection>>();
  using enum ops::JointLayout;
  layer->emplace_back(rows, kModel, std::vector<int64_t>{kModel, kKv, kKv}, kFused, grads);
  layer->emplace_back(rows, kModel, std::vector<int64_t>{kModel}, kFused, grads);
  layer->emplace_back(rows, kModel, std::vector<int64_t>{kFeed, kFeed}, kBeside, grads);
  layer->emplace_back(rows, kFeed, std::vector<int64_t>{kModel}, kFused, grads);
  const double elements = static_cast<double>(kModel * (2 * kModel + 2 * kKv + 3 * kFeed));
  return {.flops = 2.0 * static_cast<double>(rows) * elements * (grads == Grads::kNone ? 1 : 2),
          .run =
              [=] {
                for (const Projection& projection : *layer) projection.run(grads);
              },
          .reference =
              [=] {
                for (const Projection& projection : *layer) projection.run_bare(grads);
              },
          .reference_name = "bare products"};
}

/// A product as a step computes it from its third use on, against cuBLASLt's first proposal.
OpCase product_case(ops::GemmForm form, int64_t m, int64_t n, int64_t k, at::ScalarType out) {
  const bool a_turned = form == ops::GemmForm::kTn, b_turned = form == ops::GemmForm::kNt;
  ops::Gemm product{.form = form,
                    .a = a_turned ? random({k, m}) : random({m, k}),
                    .b = b_turned ? random({n, k}) : random({k, n}),
                    .d = at::empty({m, n}, at::TensorOptions(at::kCUDA).dtype(out))};
  ops::Gemm first = product;
  first.choice = ops::GemmChoice::kFirst;
  product.choice = ops::GemmChoice::kTimed;
  const int64_t result_bytes = m * n * static_cast<int64_t>(c10::elementSize(out));
  return {.bytes = 2 * (m * k + n * k) + result_bytes,
          .flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          .run = [=] { ops::gemm(product); },
          .reference = [=] { ops::gemm(first); },
          .reference_name = "first proposal"};
}

}  // namespace

void add_joint_linear_cases(Suite& suite) {
  for (const int64_t rows : {int64_t{16384}, int64_t{8192}}) {
    const std::string shape = " 7B's layer " + std::to_string(rows) + " r64 bf16";
    suite.add("joint_linear/forward" + shape, [=] { return layer_case(rows, Grads::kNone); });
    suite.add("joint_linear/with input gradient" + shape, [=] { return layer_case(rows, Grads::kInput); });
    suite.add("joint_linear/with all gradients" + shape, [=] { return layer_case(rows, Grads::kAll); });
  }
  using enum ops::GemmForm;
  const auto add = [&](const char* what, ops::GemmForm form, int64_t m, int64_t n, int64_t k,
                       at::ScalarType out) {
    suite.add(std::string("gemm/") + what, [=] { return product_case(form, m, n, k, out); });
  };
  const int64_t t = 16384, r = kRank, qkv = kModel + 2 * kKv;
  add("qkv forward", kNt, t, qkv, kModel + 3 * r, at::kBFloat16);
  add("o forward", kNt, t, kModel, kModel + r, at::kBFloat16);
  add("gate forward", kNt, t, kFeed, kModel + r, at::kBFloat16);
  add("down forward", kNt, t, kModel, kFeed + r, at::kBFloat16);
  add("qkv dx", kNn, t, kModel, qkv + 3 * r, at::kBFloat16);
  add("gate_up dx", kNn, t, kModel, 2 * (kFeed + r), at::kBFloat16);
  add("down dx", kNn, t, kFeed, kModel + r, at::kBFloat16);
  add("qkv t", kNt, t, 3 * r, kModel, at::kBFloat16);
  add("gate t", kNt, t, r, kModel, at::kBFloat16);
  add("down t", kNt, t, r, kFeed, at::kBFloat16);
  add("gate u", kNn, t, r, kFeed, at::kBFloat16);
  add("qkv u", kNn, t, 3 * r, qkv, at::kBFloat16);
  add("qkv dA", kTn, 3 * r, kModel, t, at::kFloat);
  add("down dA", kTn, r, kFeed, t, at::kFloat);
  add("gate dB", kTn, kFeed, r, t, at::kFloat);
  add("k dB", kTn, kKv, r, t, at::kFloat);
  add("gate dW", kTn, kFeed, kModel, t, at::kFloat);
}

}  // namespace apus::bench
