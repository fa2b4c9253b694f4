// What recomputed blocks keep, in pinned memory: the bits of a run that keeps it on the GPU, less memory
// there, and neither a wait of the host nor an allocation once warm.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "apus/comm/fake_communicator.h"
#include "apus/memory/device_memory.h"
#include "apus/models/decoder.h"
#include "apus/models/init_random.h"
#include "apus/parallel/sharded_model.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using memory::Residency;
using testing::random_tensor;

const at::Device kGpu(at::kCUDA, 0);
constexpr int64_t kLayers = 8, kHidden = 256;

class HostActivationsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
    at::globalContext().setDeterministicAlgorithms(true, false);
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

/// A model on the GPU and its engine.
struct Trained {
  explicit Trained(Residency activations, const ShardPolicy& policy = Zero2()) {
    models::DecoderConfig config = models::decoder_defaults("qwen2");
    config.hidden_size = kHidden;
    config.intermediate_size = 512;
    config.num_hidden_layers = kLayers;
    config.head_dim = 64;
    model = std::make_unique<models::Decoder>(config, at::kFloat);
    models::init_random(*model, {.seed = 3, .standard_deviation = 0.05});
    nn::make_trainable(*model);
    ShardedModelOptions options{.policy = policy, .activations = activations};
    options.compute_dtype = at::kBFloat16;
    options.device = kGpu;
    options.poison_released = true;
    engine = std::make_unique<ShardedModel>(*model, *dp, options);
  }

  at::Tensor loss(int64_t rows, uint64_t seed) {
    const at::Tensor tokens =
        (random_tensor({rows}, seed).abs() * 1000).to(at::kLong).remainder(100).to(kGpu);
    nn::PassContext context{.rows = nn::RowLayout::packed({rows})};
    return engine->token_log_probs(engine->forward(tokens, context), tokens, context).mean().neg();
  }

  /// Micro-batches of different sizes, and two passes in one backward.
  void step(uint64_t step, int64_t rows) {
    engine->backward(loss(rows, step), MicroBatchPlace::kNotLast);
    engine->backward(loss(rows / 2, 10 + step) + loss(rows / 4, 20 + step), MicroBatchPlace::kLast);
    norms.push_back(engine->update_async({.lr = 1e-3}));
  }

  std::vector<at::Tensor> values() {
    std::vector<at::Tensor> all;
    for (const at::Tensor& norm : norms) all.push_back(norm.cpu());
    for (const nn::NamedParameter& master : engine->gather_masters()) all.push_back(master.tensor.cpu());
    return all;
  }

  std::unique_ptr<comm::Communicator> dp = comm::make_fake_communicator({});
  std::unique_ptr<models::Decoder> model;
  std::unique_ptr<ShardedModel> engine;
  std::vector<at::Tensor> norms;
};

TEST_F(HostActivationsOnGpu, GiveTheBitsOfThoseOnTheDevice) {
  for (const ShardPolicy& policy : {ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    Trained device(Residency::kDevice, policy), host(Residency::kHost, policy);
    for (uint64_t step = 0; step < 4; ++step) {
      device.step(step, 512 + 256 * static_cast<int64_t>(step));
      host.step(step, 512 + 256 * static_cast<int64_t>(step));
    }
    const auto expected = device.values(), found = host.values();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(found[i].equal(expected[i])) << policy.name << ", value " << i;
  }
}

/// The most that a warm forward and backward of so many rows take, above what stands.
int64_t warm_peak(Residency activations, int64_t rows) {
  Trained trained(activations);
  trained.step(0, rows);
  trained.step(1, rows);
  const memory::DeviceMemory before = memory::device_memory(kGpu);
  memory::reset_peak_memory(kGpu);
  for (uint64_t step = 2; step < 5; ++step) trained.step(step, rows);
  const memory::DeviceMemory after = memory::device_memory(kGpu);
  EXPECT_EQ(after.driver_allocations, before.driver_allocations);
  return after.peak_allocated_bytes - before.allocated_bytes;
}

TEST_F(HostActivationsOnGpu, LeaveTheDevicesMemoryToOthersAndAllocateNothingOnceWarm) {
  constexpr int64_t kRows = 16384;
  const int64_t input_bytes = kRows * kHidden * 2;
  const int64_t saved = warm_peak(Residency::kDevice, kRows) - warm_peak(Residency::kHost, kRows);
  EXPECT_GE(saved, (kLayers - 4) * input_bytes);
}

}  // namespace
}  // namespace apus::parallel
