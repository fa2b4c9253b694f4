// A model folder under sharded parameters: every rank reads its slice of the mapped files and allocates no
// more.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "apus/base/memory_usage.h"
#include "apus/comm/fake_communicator.h"
#include "apus/models/init_random.h"
#include "apus/models/pretrained.h"
#include "apus/models/qwen2.h"
#include "apus/nn/module.h"
#include "apus/parallel/sharded_model.h"
#include "tests/support/memory_meter.h"
#include "tests/support/rank_threads.h"
#include "tests/support/scratch_folder.h"

namespace apus::parallel {
namespace {

using apus::ScratchFolder;
using apus::testing::MemoryMeter;
using apus::testing::run_ranks;

/// About 3 million parameters in bf16.
const models::Qwen2Config kConfig{.vocab_size = 2048,
                                  .hidden_size = 256,
                                  .intermediate_size = 512,
                                  .num_hidden_layers = 4,
                                  .num_attention_heads = 8,
                                  .num_key_value_heads = 4,
                                  .head_dim = 32};

void write_model(const ScratchFolder& folder) {
  models::Qwen2 model(kConfig, at::kBFloat16);
  models::init_random(model, {.seed = 1});
  models::save_pretrained(folder.path(), models::qwen2_config_json(kConfig, at::kBFloat16),
                          model.named_parameters());
}

models::PretrainedModel load(const ScratchFolder& folder, at::ScalarType dtype) {
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  return models::load_pretrained(folder.path(), registry,
                                 {.dtype = dtype, .conversion = models::Conversion::kLater});
}

std::map<std::string, at::Tensor> by_name(const std::vector<nn::NamedParameter>& parameters) {
  std::map<std::string, at::Tensor> result;
  for (const auto& parameter : parameters) result[parameter.name] = parameter.tensor;
  return result;
}

/// Bytes of what the engine keeps on this rank, and of the largest slice that passes through on its way
/// there.
struct Kept {
  double states = 0;
  double passing = 0;
};

Kept kept_by(ShardedModel& engine) {
  Kept kept;
  for (const auto& group : engine.groups()) {
    const auto shard = static_cast<double>(group->layout().shard_elements());
    kept.states += 12 * shard;  // fp32 parameters, which are their masters, and two moments
    kept.passing = std::max(kept.passing, 2 * shard);
  }
  for (const auto& group : engine.units().frozen_groups())
    kept.states += static_cast<double>(group->buffer().shard().numel());
  return kept;
}

void expect_slice(const ScratchFolder& folder, ModelUse use) {
  constexpr double kSmall = 64 * 1024;
  run_ranks(4, [&](std::shared_ptr<comm::Communicator> world) {
    MemoryMeter meter;
    models::PretrainedModel loaded = load(folder, at::kFloat);
    meter.reset_peak();
    const int64_t before = meter.live_bytes();
    if (use == ModelUse::kTraining) nn::make_trainable(*loaded.model);
    ShardedModel engine(*loaded.model, *world,
                        {.policy = Zero3(),
                         .compute_dtype = at::kFloat,
                         .frozen_dtype = at::kFloat,
                         .initial_values = InitialValues::kOwn,
                         .use = use});
    const Kept kept = kept_by(engine);
    const auto peak = static_cast<double>(meter.peak_bytes() - before);
    EXPECT_NEAR(static_cast<double>(meter.live_bytes() - before), kept.states, kSmall);
    EXPECT_LE(peak, kept.states + kept.passing + kSmall) << "a slice of one unit at a time";

    const auto wanted = by_name(load(folder, at::kFloat).model->named_parameters());
    const auto found = by_name(engine.gather_all());
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [name, tensor] : wanted) {
      EXPECT_TRUE(found.at(name).equal(tensor.to(at::kFloat))) << name;
    }
  });
}

TEST(Loading, AFrozenModelTakesItsShardOfTheFilesAndNoMore) {
  const ScratchFolder folder;
  write_model(folder);
  expect_slice(folder, ModelUse::kReference);
}

TEST(Loading, ATrainedModelTakesShardsOfParametersAndMoments) {
  const ScratchFolder folder;
  write_model(folder);
  expect_slice(folder, ModelUse::kTraining);
}

TEST(Loading, RankZerosBroadcastGivesTheSameValues) {
  const ScratchFolder folder;
  write_model(folder);
  run_ranks(2, [&](std::shared_ptr<comm::Communicator> world) {
    models::PretrainedModel loaded = load(folder, at::kBFloat16);
    nn::make_trainable(*loaded.model);
    ShardedModel engine(*loaded.model, *world, {.policy = Zero3()});
    const auto wanted = by_name(load(folder, at::kBFloat16).model->named_parameters());
    for (const auto& [name, tensor] : by_name(engine.gather_masters())) {
      EXPECT_TRUE(tensor.equal(wanted.at(name).to(at::kFloat))) << name;
    }
  });
}

/// Samples this process's anonymous memory while it lives.
class PeakWatch {
 public:
  PeakWatch()
      : before_(peak_.sample()), thread_([this](std::stop_token stop) {
          while (!stop.stop_requested()) {
            peak_.sample();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}
  int64_t growth() {
    peak_.sample();
    return peak_.peak_bytes() - before_;
  }

 private:
  ResidentPeak peak_;
  int64_t before_;
  std::jthread thread_;
};

TEST(Loading, TheProcessGrowsByItsShardAlone) {
  // One rank of four over 80 million parameters, bf16 in the file and fp32 in the engine.
  models::Qwen2Config config{.vocab_size = 8192,
                             .hidden_size = 1024,
                             .intermediate_size = 4096,
                             .num_hidden_layers = 4,
                             .num_attention_heads = 16,
                             .num_key_value_heads = 8,
                             .head_dim = 64};
  const ScratchFolder folder;
  int64_t elements = 0;
  {
    models::Qwen2 model(config, at::kBFloat16);  // untouched memory: zeros that cost nothing
    for (const auto& parameter : model.named_parameters()) elements += parameter.tensor.numel();
    models::save_pretrained(folder.path(), models::qwen2_config_json(config, at::kBFloat16),
                            model.named_parameters());
  }
  ASSERT_GT(elements, 70'000'000);
  const auto rank = comm::make_fake_communicator({.rank = 2, .size = 4});
  PeakWatch watch;
  const models::PretrainedModel loaded = load(folder, at::kFloat);
  const ShardedModel engine(*loaded.model, *rank,
                            {.policy = Zero3(),
                             .frozen_dtype = at::kFloat,
                             .initial_values = InitialValues::kOwn,
                             .use = ModelUse::kReference});
  const int64_t shard = 4 * elements / 4;
  EXPECT_LE(watch.growth(), shard + (int64_t{24} << 20)) << "all of it would be " << 4 * elements;
  EXPECT_GE(watch.growth(), shard / 4) << "the watch sees what is touched (memory freed before is used again)";
}

}  // namespace
}  // namespace apus::parallel
