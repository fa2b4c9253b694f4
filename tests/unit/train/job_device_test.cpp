#include "train/job_device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/train/support/plan_models.h"

namespace apus::train {
namespace {

using namespace apus::testing;

constexpr const char* kTorchText =
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.72 GiB of which 1.00 "
    "GiB "
    "is free.";

JobPlan plan_of_7b(parallel::Recompute recompute) {
  JobPlan plan{.input = lora_plan(qwen_7b(), 64, 1, parallel::Ddp())};
  plan.input.engine.recompute = recompute;
  plan.input.rows = RowProfile::of_length(4096, 1);
  plan.memory = plan_memory(plan.input);
  return plan;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST(JobDevice, WithoutAGpuItIsTheCpu) {
  EXPECT_EQ(job_device({}), at::Device(at::kCPU));
  EXPECT_EQ(peak_flops(at::kCPU, at::kBFloat16), 0.0);
}

TEST(JobDevice, AGpuThatCannotBeHadIsRefused) {
  JobContext context;
  context.gpu = 999;
  EXPECT_THROW(job_device(context), Error);
}

TEST(JobDevice, OnTheCpuNoChoiceOfProductsIsKept) {
  const ScratchFolder folder;
  const JobContext context{.cache_folder = folder / "cache"};
  load_product_choices(context, at::kCPU);
  keep_product_choices(context, at::kCPU);
  EXPECT_FALSE(std::filesystem::exists(folder / "cache"));
}

TEST(DeviceScope, DeterminismEndsWithTheJob) {
  ASSERT_FALSE(at::globalContext().deterministicAlgorithms());
  {
    const DeviceScope plain(at::kCPU, false);
    EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
    const DeviceScope strict(at::kCPU, true);
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  }
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

TEST(OutOfMemoryText, NamesWhatWasWantedAndTheLargestUsers) {
  EXPECT_EQ(memory_wanted(kTorchText), "2.50 GiB");
  EXPECT_EQ(memory_wanted("you tried to allocate 128 bytes. Error code 12"), "128 bytes");
  EXPECT_EQ(memory_wanted("no memory"), "");
  const std::string text = out_of_memory_text(kTorchText, at::kCPU, plan_of_7b(parallel::Recompute::kNone));
  EXPECT_EQ(text.find("out of memory: 2.50 GiB wanted; by the plan of "), 0u) << text;
  EXPECT_TRUE(says(text, "the largest are: activations ")) << text;
  EXPECT_TRUE(says(text, "frozen weights 14.")) << text;
  EXPECT_TRUE(says(text, "--gradient_checkpointing true")) << text;
  EXPECT_TRUE(says(text, "apus plan")) << text;
  EXPECT_FALSE(says(text, "--bf16 true")) << "it computes in bf16: " << text;
}

TEST(OutOfMemoryText, LeavesOutWhatTheJobDoesAlready) {
  const std::string text = out_of_memory_text(kTorchText, at::kCPU, plan_of_7b(parallel::Recompute::kBlock));
  EXPECT_FALSE(says(text, "--gradient_checkpointing")) << text;
  const std::string unplanned = out_of_memory_text(kTorchText, at::kCPU, std::nullopt);
  EXPECT_TRUE(says(unplanned, "--gradient_checkpointing true")) << unplanned;
  EXPECT_TRUE(says(unplanned, "--bf16 true")) << unplanned;
}

}  // namespace
}  // namespace apus::train
