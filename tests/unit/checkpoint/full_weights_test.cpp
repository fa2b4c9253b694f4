#include "apus/checkpoint/full_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "apus/base/json.h"
#include "apus/base/sharded_safetensors.h"
#include "apus/comm/fake_communicator.h"
#include "apus/models/pretrained.h"
#include "tests/support/rank_threads.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_training.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

/// A tiny model whose first block is frozen.
std::unique_ptr<models::Qwen2> partly_frozen() {
  auto model = testing::tiny_model({.job = testing::Job::kFullSft, .tied = false});
  for (auto& parameter : model->named_parameters()) {
    if (parameter.name.find("layers.0.") != std::string::npos) parameter.tensor.requires_grad_(false);
  }
  return model;
}

FullWeightsOptions options_for(at::ScalarType dtype, int64_t max_shard_bytes = 5'000'000'000) {
  return {.config_json = R"({"model_type": "qwen2", "torch_dtype": "float32"})",
          .dtype = dtype,
          .max_shard_bytes = max_shard_bytes};
}

/// The stored tensor as fp32.
std::vector<float> stored(const fs::path& folder, const std::string& name) {
  const ShardedSafetensors file(folder);
  const TensorView& view = file.at(name);
  EXPECT_EQ(view.dtype, DType::kF32);
  std::vector<float> values(view.data.size() / sizeof(float));
  std::memcpy(values.data(), view.data.data(), view.data.size());
  return values;
}

void expect_all_stored(const fs::path& folder, const std::vector<nn::NamedParameter>& expected) {
  for (const auto& parameter : expected) {
    const at::Tensor flat = parameter.tensor.contiguous().view({-1});
    const std::vector<float> values(flat.const_data_ptr<float>(),
                                    flat.const_data_ptr<float>() + flat.numel());
    EXPECT_EQ(stored(folder, parameter.name), values) << parameter.name;
  }
}

TEST(FullWeights, AreTheSameUnderEveryPolicy) {
  const auto model = partly_frozen();
  const std::vector<nn::NamedParameter> expected = testing::copies(model->named_parameters());
  const std::vector<parallel::ShardPolicy> policies = {parallel::Ddp(), parallel::Zero1(), parallel::Zero2(),
                                                       parallel::Zero3()};
  for (const parallel::ShardPolicy& policy : policies) {
    const ScratchFolder out;
    testing::run_ranks(2, [&](std::shared_ptr<comm::Communicator> dp) {
      const auto own = partly_frozen();
      parallel::ShardedModel engine(*own, *dp, {.policy = policy});
      write_full_weights(out.path(), engine, options_for(at::kFloat));
    });
    expect_all_stored(out.path(), expected);
    EXPECT_TRUE(fs::exists(out / "model.safetensors")) << policy.name;
  }
}

TEST(FullWeights, AreCutIntoFilesWithAnIndex) {
  const ScratchFolder out;
  const auto model = partly_frozen();
  const std::vector<nn::NamedParameter> expected = testing::copies(model->named_parameters());
  const auto dp = comm::make_fake_communicator({});
  parallel::ShardedModel engine(*model, *dp, {.policy = parallel::Zero3()});
  write_full_weights(out.path(), engine, options_for(at::kFloat, 1 << 14));
  EXPECT_TRUE(fs::exists(out / "model.safetensors.index.json"));
  EXPECT_GT(ShardedSafetensors(out.path()).shards().size(), 1u);
  expect_all_stored(out.path(), expected);
}

TEST(FullWeights, RoundToTheirDtypeAndSaySo_Pitfall36) {
  struct Case {
    at::ScalarType dtype;
    DType stored;
    const char* word;
    int64_t size;
  };
  for (const Case& wanted :
       {Case{at::kBFloat16, DType::kBF16, "bfloat16", 2}, Case{at::kHalf, DType::kF16, "float16", 2},
        Case{at::kFloat, DType::kF32, "float32", 4}}) {
    const ScratchFolder out;
    const auto model = partly_frozen();
    const auto dp = comm::make_fake_communicator({});
    parallel::ShardedModel engine(*model, *dp, {.policy = parallel::Ddp()});
    const FullWeightsOptions options = options_for(wanted.dtype);
    write_full_weights(out.path(), engine, options);
    const ShardedSafetensors files(out.path());
    for (const std::string& name : files.names()) EXPECT_EQ(files.at(name).dtype, wanted.stored) << name;
    EXPECT_EQ(load_json_file(out / "config.json").at("torch_dtype"), wanted.word);
    int64_t elements = 0;
    for (const auto& parameter : model->named_parameters()) elements += parameter.tensor.numel();
    EXPECT_EQ(full_weights_bytes(engine, options), wanted.size * elements);
  }
}

TEST(FullWeights, BringTheTokenizerAlong) {
  const ScratchFolder base, out;
  base.put("tokenizer.json", "{}");
  base.put("generation_config.json", "{}");
  base.put("model.safetensors", "weights");
  const auto model = partly_frozen();
  const auto dp = comm::make_fake_communicator({});
  parallel::ShardedModel engine(*model, *dp, {.policy = parallel::Ddp()});
  FullWeightsOptions options = options_for(at::kFloat);
  options.companions = base.path();
  write_full_weights(out.path(), engine, options);
  EXPECT_TRUE(fs::exists(out / "tokenizer.json"));
  EXPECT_TRUE(fs::exists(out / "generation_config.json"));
  EXPECT_GT(fs::file_size(out / "model.safetensors"), 100u) << "not the base's";
}

TEST(FullWeights, AnErrorOfRankZeroComesAfterAllCollectives) {
  testing::run_ranks(2, [&](std::shared_ptr<comm::Communicator> dp) {
    const auto own = partly_frozen();
    parallel::ShardedModel engine(*own, *dp, {.policy = parallel::Zero3()});
    if (dp->rank() == 0) {
      EXPECT_THROW(write_full_weights("/proc/no such folder", engine, options_for(at::kFloat)), Error);
    } else {
      EXPECT_NO_THROW(write_full_weights("/proc/no such folder", engine, options_for(at::kFloat)));
    }
  });
}

}  // namespace
}  // namespace apus::checkpoint
