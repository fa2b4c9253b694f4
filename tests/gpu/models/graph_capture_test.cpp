// Forward and backward of a small decoder in a CUDA graph (norms, joint projections, rotation, attention,
// activation and loss head, gradients written in place), replayed on other tokens and other sequences.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apus/memory/device_memory.h"
#include "apus/memory/grad_sink.h"
#include "apus/memory/param_group.h"
#include "apus/models/decoder.h"
#include "apus/nn/linear.h"
#include "apus/ops/device_rows.h"
#include "apus/ops/token_log_probs.h"
#include "tests/support/tensor_checks.h"

namespace apus::models {
namespace {

using namespace apus::testing;

const at::Device kGpu(at::kCUDA, 0);

enum class Trained { kAdapters, kAll };

/// A model of sizes that every kernel takes.
std::unique_ptr<Decoder> model_of(Trained trained) {
  DecoderConfig config = decoder_defaults("qwen2");
  config.hidden_size = 128;
  config.intermediate_size = 192;
  config.head_dim = 64;
  auto model = std::make_unique<Decoder>(config, at::kBFloat16);
  if (trained == Trained::kAdapters) {
    for (const auto& [path, module] : model->named_modules())
      if (auto* linear = dynamic_cast<nn::Linear*>(module))
        linear->add_adapter("a", {.rank = 8, .alpha = 16, .path = path}, at::kBFloat16);
  } else {
    nn::make_trainable(*model);
  }
  uint64_t seed = 90;
  for (const nn::NamedParameter& parameter : model->named_parameters()) {
    const bool trains = parameter.tensor.requires_grad();
    const bool is_norm = parameter.tensor.dim() == 1 && !parameter.name.ends_with("bias");
    const at::Tensor values = random_tensor(parameter.tensor.sizes(), seed++) * 0.08 + (is_norm ? 1.0 : 0.0);
    parameter.tensor.set_data(values.to(at::kBFloat16));
    parameter.tensor.set_requires_grad(trains);
  }
  return model;
}

/// All that a pass reads beside the weights, in tensors that may be written anew.
struct Inputs {
  at::Tensor tokens_T, targets_T, weights_T;
  nn::PassContext context;

  /// Writes other values into these tensors, the sequences' borders included.
  void take(const Inputs& other) const {
    tokens_T.copy_(other.tokens_T);
    targets_T.copy_(other.targets_T);
    weights_T.copy_(other.weights_T);
    context.cos_TH.copy_(other.context.cos_TH);
    context.sin_TH.copy_(other.context.sin_TH);
    const ops::DeviceRows &own = *context.device_rows, &given = *other.context.device_rows;
    own.lengths().copy_(given.lengths());
    own.offsets(1).copy_(given.offsets(1));
  }
};

/// A model whose gradients lie in one group's buffer, which outlives graphs.
class Bench {
 public:
  explicit Bench(Trained trained) : model_(model_of(trained)) {
    model_->place({.device = kGpu});
    std::vector<memory::GroupParameter> parameters;
    for (const nn::NamedParameter& parameter : model_->named_parameters())
      if (parameter.tensor.requires_grad()) parameters.push_back({parameter.name, parameter.tensor});
    group_ = std::make_unique<memory::ParamGroup>(
        std::move(parameters), memory::ParamGroupOptions{.compute_dtype = at::kBFloat16, .device = kGpu});
    sink_ = std::make_unique<memory::GradSink>(std::vector<memory::ParamGroup*>{group_.get()});
  }

  const memory::ParamGroup& group() const { return *group_; }
  /// The flat gradient of the last pass, fp32.
  const at::Tensor& gradient() const { return gradient_G_; }

  Inputs inputs(std::vector<int64_t> lengths, uint64_t seed) {
    Inputs made;
    made.context.rows = nn::RowLayout::packed(std::move(lengths));
    made.context.adapters = {"a"};
    model_->prepare(made.context);
    made.context.gradients = sink_.get();
    const int64_t rows = made.context.rows->rows();
    const auto ids = [&](uint64_t of) {
      const at::Tensor raw = random_tensor({rows}, of).abs() * 1000.0;
      return raw.to(at::kLong).remainder(model_->vocab_size()).to(kGpu);
    };
    made.tokens_T = ids(seed);
    made.targets_T = ids(seed + 100);
    made.weights_T = random_tensor({rows}, seed + 200).to(kGpu);
    return made;
  }

  /// Log-probabilities of the targets; their gradient, times the rows' weights, into the group's buffer.
  at::Tensor pass(const Inputs& in) {
    at::Tensor hidden = model_->embed(in.tokens_T, in.context);
    for (nn::Block* block : model_->blocks()) hidden = block->forward(hidden, in.context);
    hidden = model_->final_norm(hidden, in.context);
    const at::Tensor logp_T = ops::token_log_probs(hidden, model_->head_weight(in.context), in.targets_T,
                                                   {.row_scale_M = in.weights_T, .gradients = sink_.get()});
    torch::autograd::variable_list leaves;
    for (const memory::GroupParameter& parameter : group_->parameters()) leaves.push_back(parameter.tensor);
    const auto grads = torch::autograd::grad({logp_T}, leaves, {in.weights_T}, /*retain_graph=*/false,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t index = 0; index < grads.size(); ++index)
      if (grads[index].defined()) group_->add_grad(static_cast<int64_t>(index), grads[index]);
    gradient_G_ = group_->begin_reduce();
    group_->finish_reduce({});
    group_->reset_grads();
    return logp_T.detach();
  }

 private:
  std::unique_ptr<Decoder> model_;
  std::unique_ptr<memory::ParamGroup> group_;
  std::unique_ptr<memory::GradSink> sink_;
  at::Tensor gradient_G_;
};

double rms(const at::Tensor& x) {
  return x.to(at::kDouble).square().mean().sqrt().item<double>();
}

/// What a pass leaves, copied.
struct Outcome {
  at::Tensor logp_T, gradient_G;
};

Outcome eager(Bench& bench, const Inputs& in) {
  const at::Tensor logp_T = bench.pass(in);
  return {logp_T.clone(), bench.gradient().clone()};
}

/// Equal but for dq, whose parts cuDNN adds in any order, and what is rounded behind it.
void expect_same(const Bench& bench, const Outcome& found, const Outcome& wanted, const std::string& what) {
  EXPECT_LE(rms_difference(found.logp_T, wanted.logp_T), 1e-5 * rms(wanted.logp_T)) << what;
  const memory::FlatLayout& layout = bench.group().layout();
  const double typical = rms(wanted.gradient_G);
  for (size_t index = 0; index < bench.group().parameters().size(); ++index) {
    const memory::ElementRange range = layout.range_of(static_cast<int64_t>(index));
    const at::Tensor found_P = found.gradient_G.slice(0, range.begin, range.end);
    const at::Tensor wanted_P = wanted.gradient_G.slice(0, range.begin, range.end);
    EXPECT_LE(rms_difference(found_P, wanted_P), 1e-2 * rms(wanted_P) + 1e-3 * typical)
        << what << ": " << bench.group().parameters()[index].name;
  }
}

class GraphCapture : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

void capture(at::cuda::CUDAGraph& graph, const std::function<void()>& body) {
  graph.capture_begin();
  try {
    body();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "refused while captured: " << error.what();
  }
  graph.capture_end();
}

void expect_replays(Trained trained, const std::string& what) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(false, kGpu.index()));
  Bench bench(trained);
  const std::vector<int64_t> lengths = {120, 1, 96, 39}, other_lengths = {39, 100, 0, 117};
  const Inputs first = bench.inputs(lengths, 1), second = bench.inputs(other_lengths, 2);
  Outcome of_first;
  for (int warm_up = 0; warm_up < 3; ++warm_up) of_first = eager(bench, first);
  const Outcome of_second = eager(bench, second);
  ASSERT_GT(rms_difference(of_first.logp_T, of_second.logp_T), 0.1 * rms(of_first.logp_T)) << what;
  ASSERT_GT(rms(of_second.gradient_G), 0.0) << what;
  const void* const buffer = bench.gradient().const_data_ptr();

  // Rows that no pass has read: what follows from the borders is computed inside the graph.
  const Inputs read = bench.inputs(lengths, 3);
  c10::cuda::device_synchronize();
  at::Tensor logp_T;
  {
    at::cuda::CUDAGraph graph;
    capture(graph, [&] { logp_T = bench.pass(read); });
    if (::testing::Test::HasFailure()) return;
    EXPECT_EQ(bench.gradient().const_data_ptr(), buffer) << what << ": gradients lie in the permanent buffer";
    const auto replayed = [&](const Inputs& inputs) {
      read.take(inputs);
      bench.gradient().fill_(std::numeric_limits<double>::quiet_NaN());
      graph.replay();
      return Outcome{logp_T.clone(), bench.gradient().clone()};
    };
    expect_same(bench, replayed(second), of_second, what + ", other tokens and sequences");
    expect_same(bench, replayed(first), of_first, what + ", and those of the capture's lengths");
    const int64_t calls = memory::device_memory(kGpu).driver_allocations;
    expect_same(bench, replayed(second), of_second, what + ", again");
    EXPECT_EQ(memory::device_memory(kGpu).driver_allocations, calls) << what;
    c10::cuda::device_synchronize();
  }
  // The graph and its memory are gone; the gradients are not, and eager passes go on.
  logp_T.reset();
  const at::Tensor last_G = bench.gradient().clone();
  expect_same(bench, {of_second.logp_T, last_G}, of_second, what + ", after the graph");
  expect_same(bench, eager(bench, first), of_first, what + ", eager after the graph");
}

TEST_F(GraphCapture, AdaptersTrainFromAReplayedGraph_Pitfall48) {
  expect_replays(Trained::kAdapters, "adapters");
}

TEST_F(GraphCapture, AllWeightsTrainFromAReplayedGraph_Pitfall48) {
  expect_replays(Trained::kAll, "all weights");
}

}  // namespace
}  // namespace apus::models
