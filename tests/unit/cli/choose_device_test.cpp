#include "cli/choose_device.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

constexpr int64_t kCardBytes = int64_t{40} << 30;

/// A program with CUDA, and so many A100.
DeviceFacts with_gpus(int count) {
  DeviceFacts facts{.survey = {.state = GpuState::kUsable, .count = count}, .has_cuda = true};
  for (int i = 0; i < count; ++i)
    facts.gpus.push_back({.name = "NVIDIA A100-SXM4-40GB", .memory_bytes = kCardBytes, .capability = 80});
  return facts;
}

DeviceFacts without_gpus(GpuState state, const std::string& reason) {
  return {.survey = {.state = state, .reason = reason}, .has_cuda = true};
}

template <typename Type>
std::string refusal(const TrainingCommand& command, const DeviceFacts& facts) {
  try {
    choose_device(command, facts);
  } catch (const Type& error) {
    return error.what();
  }
  return "accepted";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST(ChooseDevice, TheCpuIsTakenAndSaid) {
  const TrainingCommand plain;
  EXPECT_EQ(choose_device(plain, without_gpus(GpuState::kNone, "no GPU here")).sentence,
            "Training on the CPU: no GPU here");
  EXPECT_EQ(choose_device(plain, without_gpus(GpuState::kHidden, "hidden")).sentence,
            "Training on the CPU: hidden");
  const TrainingCommand gloo{.ddp_backend = "gloo"};
  for (const DeviceFacts& facts : {with_gpus(4), without_gpus(GpuState::kUnusable, "x")}) {
    const DeviceChoice choice = choose_device(gloo, facts);
    EXPECT_EQ(choice.sentence, "Training on the CPU: --ddp_backend gloo");
    EXPECT_FALSE(choice.gpu);
    EXPECT_TRUE(choice.warnings.empty());
  }
}

TEST(ChooseDevice, AUsableGpuIsTaken) {
  const DeviceChoice choice = choose_device({}, with_gpus(1));
  EXPECT_EQ(choice.gpu, 0);
  EXPECT_EQ(choice.sentence, "Training on GPU 0: NVIDIA A100-SXM4-40GB, 40 GiB");
  EXPECT_TRUE(choice.warnings.empty());
}

TEST(ChooseDevice, ARankTakesTheGpuOfItsPlaceOnTheMachine) {
  DeviceFacts facts = with_gpus(4);
  facts.local_world_size = 4;
  for (const int rank : {0, 3}) {
    facts.local_rank = rank;
    const DeviceChoice choice = choose_device({.ddp_backend = "nccl"}, facts);
    EXPECT_EQ(choice.gpu, rank);
    EXPECT_EQ(choice.sentence,
              "Training on 4 GPUs of this machine, a rank on each: NVIDIA A100-SXM4-40GB, 40 GiB");
    EXPECT_TRUE(choice.warnings.empty());
  }
}

TEST(ChooseDevice, OneRankOnSeveralGpusIsWarnedOf) {
  const DeviceChoice choice = choose_device({}, with_gpus(4));
  EXPECT_EQ(choice.gpu, 0);
  ASSERT_EQ(choice.warnings.size(), 1u);
  EXPECT_TRUE(says(choice.warnings[0], "NPROC_PER_NODE=4")) << choice.warnings[0];
}

TEST(ChooseDevice, FewerGpusThanLocalRanksAreRefusedWithBothNumbers) {
  DeviceFacts facts = with_gpus(2);
  facts.local_world_size = 4;
  const std::string message = refusal<ConfigError>({}, facts);
  EXPECT_TRUE(says(message, "4 ranks run on this machine")) << message;
  EXPECT_TRUE(says(message, "they see 2 GPUs")) << message;
}

TEST(ChooseDevice, WhatCannotWorkNamesTheRemedy) {
  const std::string unusable =
      refusal<ConfigError>({}, without_gpus(GpuState::kUnusable, "the driver is too old"));
  EXPECT_EQ(unusable.find("the driver is too old; to train on the CPU all the same"), 0u) << unusable;
  EXPECT_EQ(refusal<ConfigError>({.ddp_backend = "nccl"}, without_gpus(GpuState::kNone, "no GPU here")),
            "--ddp_backend nccl needs a GPU: no GPU here; give --ddp_backend gloo to train on the CPU");
}

TEST(ChooseDevice, AProgramWithoutCudaLeavesUsableGpusAlone) {
  DeviceFacts facts = with_gpus(4);
  facts.has_cuda = false;
  const std::string message = refusal<NotSupported>({}, facts);
  EXPECT_TRUE(says(message, "4 usable GPU(s)")) << message;
  EXPECT_TRUE(says(message, "-DAPUS_CUDA=ON")) << message;
  EXPECT_TRUE(says(message, "CUDA_VISIBLE_DEVICES=")) << message;
  EXPECT_TRUE(says(message, "--ddp_backend gloo")) << message;
}

TEST(ChooseDevice, AnOldCardIsRefusedByItsComputeCapability) {
  DeviceFacts facts = with_gpus(1);
  facts.gpus[0] = {.name = "Tesla V100-SXM2-32GB", .memory_bytes = int64_t{32} << 30, .capability = 70};
  const std::string message = refusal<ConfigError>({}, facts);
  EXPECT_TRUE(says(message, "GPU 0 (Tesla V100-SXM2-32GB) has compute capability 7.0")) << message;
  EXPECT_TRUE(says(message, "needs 8.0 or later")) << message;
  facts.gpus[0].capability = 0;
  EXPECT_EQ(refusal<ConfigError>({}, facts), "accepted") << "the driver did not say";
  facts.gpus.clear();
  EXPECT_EQ(choose_device({}, facts).sentence, "Training on GPU 0");
}

TEST(ChooseDevice, ALibraryThatDoesNotServeStopsARunOnGpusAlone) {
  DeviceFacts facts = with_gpus(1);
  facts.library_fault = "cuDNN 8.9 is loaded";
  EXPECT_EQ(refusal<ConfigError>({}, facts), "cuDNN 8.9 is loaded");
  EXPECT_EQ(refusal<ConfigError>({.ddp_backend = "gloo"}, facts), "accepted");
}

TEST(ChooseDevice, TheMachineIsAskedWithinTheVariable) {
  const DeviceFacts facts = read_device_facts(Environment(Environment::Map{{"CUDA_VISIBLE_DEVICES", ""}}));
  EXPECT_FALSE(facts.survey.usable());
  EXPECT_TRUE(facts.gpus.empty());
  EXPECT_TRUE(facts.library_fault.empty());
}

}  // namespace
}  // namespace apus::cli
