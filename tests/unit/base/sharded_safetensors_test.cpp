#include "apus/base/sharded_safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "apus/base/error.h"
#include "tests/unit/base/support/safetensors_bytes.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

std::string one_tensor(const std::string& name) {
  return safetensors_bytes("{" + entry(name, "U8", "[2]", 0, 2) + "}", 2);
}

std::string refusal(const std::filesystem::path& folder) {
  return message_of<CheckpointError>([&] { ShardedSafetensors{folder}; });
}

TEST(ShardedSafetensors, ReadsASingleFile) {
  const ScratchFolder folder;
  folder.put("model.safetensors", one_tensor("w"));
  const ShardedSafetensors weights(folder.path());
  EXPECT_EQ(weights.names(), std::vector<std::string>{"w"});
  EXPECT_EQ(weights.at("w").data.size(), 2u);
  EXPECT_EQ(weights.find("v"), nullptr);
}

TEST(ShardedSafetensors, ReadsAnotherStem) {
  const ScratchFolder folder;
  folder.put("adapter_model.safetensors", one_tensor("lora_A"));
  EXPECT_TRUE(ShardedSafetensors(folder.path(), {.stem = "adapter_model"}).has("lora_A"));
}

TEST(ShardedSafetensors, ReadsShardsOnlyWhenAsked) {
  const ScratchFolder folder;
  folder.put("a.safetensors", one_tensor("x"));
  folder.put("b.safetensors", "broken");
  folder.put(kIndex,
             R"({"metadata":{"total_size":4},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  const ShardedSafetensors weights(folder.path());
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(weights.shards(), (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
  EXPECT_EQ(weights.at("x").name, "x");
  EXPECT_NE(message_of<CheckpointError>([&] { weights.at("y"); }).find("b.safetensors"), std::string::npos);
  EXPECT_EQ(weights.find("z"), nullptr);
}

TEST(ShardedSafetensors, OneFileIsMappedOnceForManyThreads) {
  const ScratchFolder folder;
  folder.put("a.safetensors", one_tensor("x"));
  folder.put(kIndex, R"({"weight_map":{"x":"a.safetensors"}})");
  const ShardedSafetensors weights(folder.path());
  std::vector<const TensorView*> found(8);
  std::vector<std::thread> threads;
  for (auto& slot : found) threads.emplace_back([&weights, &slot] { slot = weights.find("x"); });
  for (std::thread& thread : threads) thread.join();
  for (const TensorView* tensor : found) EXPECT_EQ(tensor, found[0]);
}

TEST(ShardedSafetensors, AMissingShardIsNamed) {
  const ScratchFolder folder;
  folder.put(kIndex, R"({"weight_map":{"x":"model-00002-of-00003.safetensors"}})");
  EXPECT_EQ(refusal(folder.path()),
            (folder / "model-00002-of-00003.safetensors").string() +
                ": is missing; model.safetensors.index.json lists it: download or copy it");
}

TEST(ShardedSafetensors, AnIndexMayNotLeaveTheFolder) {
  const ScratchFolder folder;
  folder.put("outside.safetensors", one_tensor("x"));
  for (const char* shard :
       {"../outside.safetensors", "/etc/passwd", "..", "", "sub/a.safetensors", "a\\\\b"}) {
    folder.put(std::string("model/") + kIndex, std::string(R"({"weight_map":{"x":")") + shard + "\"}}");
    const std::string message = refusal(folder / "model");
    EXPECT_NE(message.find("is not a file of the folder itself"), std::string::npos) << shard << message;
  }
}

TEST(ShardedSafetensors, AListedTensorMustBeInItsShard) {
  const ScratchFolder folder;
  folder.put("a.safetensors", one_tensor("x"));
  folder.put(kIndex, R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors"}})");
  const ShardedSafetensors weights(folder.path());
  EXPECT_EQ(message_of<CheckpointError>([&] { weights.find("y"); }),
            (folder / "a.safetensors").string() +
                ": tensor 'y': is not in the file, though model.safetensors.index.json says so");
}

TEST(ShardedSafetensors, ABrokenIndexIsRefused) {
  const ScratchFolder folder;
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"x":1}})", "{\"weight_map\":"}) {
    folder.put(kIndex, text);
    EXPECT_NE(refusal(folder.path()).find(kIndex), std::string::npos) << text;
  }
}

TEST(ShardedSafetensors, PickledWeightsAreRefusedWithTheCommandThatConverts) {
  const ScratchFolder folder;
  folder.put("pytorch_model.bin", "x");
  const std::string message = refusal(folder.path());
  EXPECT_NE(message.find("python3 -c"), std::string::npos) << message;
  EXPECT_NE(message.find("save_pretrained"), std::string::npos) << message;
}

TEST(ShardedSafetensors, AFolderWithoutWeightsSaysWhatWasExpected) {
  const ScratchFolder folder;
  EXPECT_EQ(refusal(folder.path()),
            folder.path().string() +
                ": holds no weights: expected model.safetensors or model.safetensors.index.json");
  EXPECT_NE(refusal(folder / "missing").find("does not exist"), std::string::npos);
}

TEST(ShardedSafetensors, AnUnknownNameSuggestsTheNearest) {
  const ScratchFolder folder;
  folder.put("model.safetensors", one_tensor("model.norm.weight"));
  const ShardedSafetensors weights(folder.path());
  const std::string message = message_of<CheckpointError>([&] { weights.at("model.nrom.weight"); });
  EXPECT_NE(message.find("did you mean 'model.norm.weight'"), std::string::npos) << message;
}

}  // namespace
}  // namespace apus
