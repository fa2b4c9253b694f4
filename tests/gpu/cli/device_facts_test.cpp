// What a program with CUDA finds on a machine with a GPU.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include "apus/train/cards.h"
#include "cli/choose_device.h"
#include "cli/env_text.h"
#include "cli/growing_segments.h"
#include "train/job_device.h"

namespace apus::cli {
namespace {

class DeviceFactsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }

  const Environment environment_ = Environment(Environment::Map{});
};

TEST_F(DeviceFactsOnGpu, TheMachineServes) {
  const DeviceFacts facts = read_device_facts(environment_);
  EXPECT_TRUE(facts.has_cuda);
  EXPECT_TRUE(facts.survey.usable()) << facts.survey.reason;
  EXPECT_EQ(facts.library_fault, "");
  ASSERT_EQ(facts.gpus.size(), static_cast<size_t>(c10::cuda::device_count()));
  EXPECT_GE(facts.gpus[0].capability, kLeastCapability);
  EXPECT_GT(facts.gpus[0].memory_bytes, int64_t{8} << 30);
  EXPECT_EQ(choose_device({}, facts).gpu, 0);
}

TEST_F(DeviceFactsOnGpu, LibrariesSayTheirVersionsAndFiles) {
  for (const LoadedLibrary& library : loaded_libraries()) {
    EXPECT_FALSE(library.loaded.empty()) << library.name;
    EXPECT_FALSE(library.path.empty()) << library.name;
  }
  EXPECT_GE(cuda::runtime_version(), 12000);
}

TEST_F(DeviceFactsOnGpu, EnvNamesCardsAndLibraries) {
  const std::string text = env_text(read_env_facts(environment_));
  EXPECT_NE(text.find("0: " + train::cuda::gpu_name(0)), text.npos) << text;
  EXPECT_NE(text.find("cuDNN 9."), text.npos) << text;
}

TEST_F(DeviceFactsOnGpu, SegmentsGrowWhereTheDriverCan) {
  const bool grow = grow_segments(environment_, 0);
  EXPECT_EQ(c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments(), grow);
  // Either way tensors can be had.
  const at::Tensor large = at::empty({int64_t{64} << 20}, at::TensorOptions(at::kByte).device(at::kCUDA));
  EXPECT_EQ(large.fill_(7).sum(at::kLong).item<int64_t>(), 7 * (int64_t{64} << 20));
}

TEST_F(DeviceFactsOnGpu, AKnownCardHasAPeak) {
  const at::Device device(at::kCUDA, 0);
  const double peak = train::peak_flops(device, at::kBFloat16);
  try {
    EXPECT_EQ(peak, train::find_card(train::cuda::gpu_name(0)).bf16_flops);
  } catch (const std::exception&) {
    EXPECT_EQ(peak, 0.0) << "no data sheet is known of it";
  }
  EXPECT_GT(train::card_share_bytes(device), int64_t{1} << 30);
}

}  // namespace
}  // namespace apus::cli
