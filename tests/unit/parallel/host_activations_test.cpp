// What recomputed blocks keep, on the host: the same bits as on the device, and one input on the device at a
// time.
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/parallel/sharded_model.h"
#include "tests/support/memory_meter.h"
#include "tests/support/tensor_checks.h"
#include "tests/support/tiny_batches.h"

namespace apus::parallel {
namespace {

using memory::Residency;
using testing::random_tensor;
using Widths = std::vector<int64_t>;

constexpr int64_t kLayers = 6;

std::unique_ptr<models::Qwen2> deep_qwen2() {
  auto model = std::make_unique<models::Qwen2>(
      models::Qwen2Config{.num_hidden_layers = kLayers, .tie_word_embeddings = true}, at::kFloat);
  models::init_random(*model, {.seed = 3, .standard_deviation = 0.2});
  nn::make_trainable(*model);
  return model;
}

at::Tensor tokens_of(int64_t rows, uint64_t seed) {
  return (random_tensor({rows}, seed).abs() * 1000).to(at::kLong).remainder(29);
}

class HostActivations : public ::testing::TestWithParam<std::string> {
 protected:
  ShardedModelOptions options(Residency activations) const {
    ShardedModelOptions options{.activations = activations, .poison_released = true};
    if (GetParam() == "zero3") options.policy = Zero3();
    if (GetParam() == "every other block") options.recompute_blocks = Widths{0, 2, 4};
    return options;
  }

  static at::Tensor loss(ShardedModel& engine, int64_t rows, uint64_t seed) {
    const at::Tensor tokens = tokens_of(rows, seed);
    nn::PassContext context{.rows = nn::RowLayout::packed({rows})};
    return engine.token_log_probs(engine.forward(tokens, context), tokens, context).mean().neg();
  }

  /// Three steps: micro-batches of different sizes, an evaluation in between, and two passes in one backward.
  std::vector<at::Tensor> trained(Residency activations) const {
    const auto model = deep_qwen2();
    ShardedModel engine(*model, *dp_, options(activations));
    std::vector<at::Tensor> results;
    for (uint64_t step = 0; step < 3; ++step) {
      const auto width = static_cast<int64_t>(5 + 4 * step);
      engine.backward(loss(engine, width, step), MicroBatchPlace::kNotLast);
      const at::Tensor pair = loss(engine, 9, 10 + step);
      {
        const at::NoGradGuard no_grad;
        results.push_back(loss(engine, 7, 20 + step));
      }
      engine.backward(pair + loss(engine, 4, 30 + step), MicroBatchPlace::kLast);
      engine.update({.lr = 1e-2});
    }
    for (const nn::NamedParameter& master : engine.gather_masters()) results.push_back(master.tensor);
    return results;
  }

  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
};

TEST_P(HostActivations, GiveTheBitsOfThoseOnTheDevice) {
  const auto device = trained(Residency::kDevice), host = trained(Residency::kHost);
  ASSERT_EQ(device.size(), host.size());
  for (size_t i = 0; i < device.size(); ++i) EXPECT_TRUE(device[i].equal(host[i])) << i;
}

TEST_P(HostActivations, AnErrorBetweenForwardAndBackwardLeavesNothingBehind) {
  const auto model = deep_qwen2(), fresh = deep_qwen2();
  ShardedModel engine(*model, *dp_, options(Residency::kHost)),
      other(*fresh, *dp_, options(Residency::kHost));
  for (int pass = 0; pass < 3; ++pass) {
    const testing::MemoryMeter meter;
    EXPECT_THROW(
        {
          const at::Tensor lost = loss(engine, 9, 1);
          throw DataError("rows", 1, "broken");
        },
        DataError);
    if (pass > 0) EXPECT_EQ(meter.live_bytes(), 0) << "pass " << pass;
  }
  EXPECT_TRUE(loss(engine, 9, 1).equal(loss(other, 9, 1)));
}

INSTANTIATE_TEST_SUITE_P(Policies, HostActivations, ::testing::Values("zero2", "zero3", "every other block"),
                         [](const auto& info) {
                           return info.param == "every other block" ? std::string("blocks") : info.param;
                         });

/// Live bytes after a forward, over those before.
int64_t kept_bytes(Residency activations, int64_t rows) {
  const auto model = deep_qwen2();
  const auto dp = comm::make_fake_communicator({});
  ShardedModel engine(*model, *dp, {.activations = activations});
  nn::PassContext context{.rows = nn::RowLayout::packed({rows})};
  const at::Tensor tokens = tokens_of(rows, 1);
  const testing::MemoryMeter meter;
  const at::Tensor hidden = engine.forward(tokens, context);
  return meter.live_bytes();
}

TEST(HostActivationsMemory, EachStoredInputLiesOnceOnTheHost) {
  // On the CPU both sides count alike. The first block's input is the embedding's output, which its tape
  // keeps.
  constexpr int64_t kRows = 512;
  const int64_t input_bytes = kRows * models::Qwen2Config().hidden_size * 4;
  kept_bytes(Residency::kDevice, kRows);  // what a thread's first pass leaves
  EXPECT_EQ(kept_bytes(Residency::kHost, kRows), kept_bytes(Residency::kDevice, kRows) + input_bytes);
}

}  // namespace
}  // namespace apus::parallel
