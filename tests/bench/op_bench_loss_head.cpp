#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "apus/memory/grad_sink.h"
#include "apus/ops/select_rows.h"
#include "apus/ops/token_log_probs.h"
#include "ops/gemm.h"
#include "ops/kernels/log_probs.h"
#include "tests/bench/op_bench.h"

namespace apus::bench {
namespace {

constexpr int64_t kRows = 16384, kWidth = 3584, kVocab = 152064, kChunk = 8192;

at::TensorOptions bf16() {
  return at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
}

at::Tensor random(at::IntArrayRef sizes, double scale) {
  return at::empty(sizes, bf16()).normal_(0.0, scale);
}

/// Supervised rows of a 7B model's last hidden state.
struct Head {
  at::Tensor hidden = random({kRows, kWidth}, 1.0), weight = random({kVocab, kWidth}, 0.02);
  at::Tensor targets = at::arange(kRows, bf16().dtype(at::kLong)).mul(9).remainder(kVocab);
  at::Tensor scale = at::empty({kRows}, bf16().dtype(at::kFloat)).fill_(-1.0 / kRows);
  at::Tensor logits = at::empty({kChunk, kVocab}, bf16());
  at::Tensor hidden_gradient = at::empty({kRows, kWidth}, bf16());
};

/// The products of the head alone, by the same chunks.
std::function<void()> products(std::shared_ptr<Head> head, bool hidden, at::Tensor weight_gradient) {
  return [head, hidden, weight_gradient] {
    for (int64_t first = 0; first < kRows; first += kChunk) {
      const at::Tensor rows = head->hidden.narrow(0, first, kChunk);
      ops::gemm({.form = ops::GemmForm::kNt, .a = rows, .b = head->weight, .d = head->logits});
      if (hidden) {
        ops::gemm({.form = ops::GemmForm::kNn,
                   .a = head->logits,
                   .b = head->weight,
                   .d = head->hidden_gradient.narrow(0, first, kChunk)});
      }
      if (weight_gradient.defined()) {
        ops::gemm({.form = ops::GemmForm::kTn,
                   .a = head->logits,
                   .b = rows,
                   .d = weight_gradient,
                   .beta = first == 0 ? 0.0 : 1.0});
      }
    }
  };
}

constexpr double kProduct = 2.0 * kRows * kWidth * kVocab;

OpCase plain_case() {
  auto head = std::make_shared<Head>();
  return {.flops = kProduct,
          .run =
              [head] {
                const at::NoGradGuard no_grad;
                ops::token_log_probs(head->hidden, head->weight, head->targets);
              },
          .reference = products(head, false, {}),
          .reference_name = "its product"};
}

OpCase frozen_case() {
  auto head = std::make_shared<Head>();
  head->hidden.set_requires_grad(true);
  return {.flops = 2 * kProduct,
          .run =
              [head] {
                ops::token_log_probs(head->hidden, head->weight, head->targets).backward(head->scale);
                head->hidden.mutable_grad().reset();
              },
          .reference = products(head, true, {}),
          .reference_name = "its two products"};
}

OpCase trained_case() {
  struct Trained {
    std::shared_ptr<Head> head = std::make_shared<Head>();
    std::unique_ptr<memory::ParamGroup> group;
    std::unique_ptr<memory::GradSink> sink;
  };
  auto all = std::make_shared<Trained>();
  all->head->hidden.set_requires_grad(true);
  all->head->weight.set_requires_grad(true);
  all->group = std::make_unique<memory::ParamGroup>(
      std::vector<memory::GroupParameter>{{.name = "head", .tensor = all->head->weight}},
      memory::ParamGroupOptions{});
  all->sink = std::make_unique<memory::GradSink>(std::vector<memory::ParamGroup*>{all->group.get()});
  const auto run = [all] {
    Head& head = *all->head;
    all->sink->expect(head.weight);
    ops::token_log_probs(head.hidden, head.weight, head.targets,
                         {.row_scale_M = head.scale, .gradients = all->sink.get()})
        .backward(head.scale);
    head.hidden.mutable_grad().reset();
    all->sink->add(head.weight, {});
    all->sink->flush();
  };
  return {.flops = 3 * kProduct,
          .run = run,
          .reference = products(all->head, true, at::empty({kVocab, kWidth}, bf16().dtype(at::kFloat))),
          .reference_name = "its three products"};
}

/// The kernel between the products; logits become gradients again and again, whose values do not matter.
OpCase kernel_case(bool gradient) {
  auto head = std::make_shared<Head>();
  const at::Tensor logp = at::empty({kChunk}, head->scale.options());
  head->logits.normal_(0.0, 2.0);
  return {.bytes = kChunk * kVocab * 2 * (gradient ? 2 : 1), .run = [head, logp, gradient] {
            ops::kernels::launch_log_prob_rows({.logits = head->logits.mutable_data_ptr(),
                                                .stride = kVocab,
                                                .rows = kChunk,
                                                .vocab = kVocab,
                                                .makes_gradient = gradient,
                                                .targets = head->targets.const_data_ptr<int64_t>(),
                                                .log_probs = logp.mutable_data_ptr<float>()},
                                               c10::cuda::getCurrentCUDAStream());
          }};
}

/// Half of the rows are selected.
OpCase select_case(bool backward) {
  struct Set {
    at::Tensor x, rows, y;
  };
  constexpr int64_t kSelected = kRows / 2;
  const int64_t bytes = (backward ? kRows + kSelected : 2 * kSelected) * kWidth * 2;
  auto sets = make_rotation<Set>(bytes, [backward] {
    Set set{.x = random({kRows, kWidth}, 1.0).set_requires_grad(backward),
            .rows = at::arange(kSelected, bf16().dtype(at::kLong)).mul(2),
            .y = random({kSelected, kWidth}, 1.0)};
    if (backward) set.y = ops::select_rows(set.x, set.rows);
    return set;
  });
  const at::Tensor dy = random({kSelected, kWidth}, 1.0);
  return {.bytes = bytes, .run = [sets, dy, backward] {
            Set& set = sets->next();
            if (!backward) {
              ops::select_rows(set.x, set.rows);
              return;
            }
            set.y.backward(dy, /*retain_graph=*/true);
            set.x.mutable_grad().reset();
          }};
}

}  // namespace

void add_loss_head_cases(Suite& suite) {
  suite.add("log_prob_rows/values 8192x152064 bf16", [] { return kernel_case(false); });
  suite.add("log_prob_rows/gradient 8192x152064 bf16", [] { return kernel_case(true); });
  suite.add("loss_head/no tape 16384x3584x152064", [] { return plain_case(); });
  suite.add("loss_head/frozen 16384x3584x152064", [] { return frozen_case(); });
  suite.add("loss_head/trained 16384x3584x152064", [] { return trained_case(); });
  suite.add("select_rows/forward 8192 of 16384x3584", [] { return select_case(false); });
  suite.add("select_rows/backward 8192 of 16384x3584", [] { return select_case(true); });
}

}  // namespace apus::bench
