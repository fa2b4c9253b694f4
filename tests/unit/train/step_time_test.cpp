#include "apus/train/step_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "apus/base/error.h"
#include "tests/unit/train/support/plan_models.h"

namespace apus::train {
namespace {

using parallel::Recompute;

models::TokenFlops flops_of(const nlohmann::json& config, int64_t length) {
  return apus::testing::builtin_models().find("qwen2").token_flops(config, length);
}

/// LoRA of a 7B model at 4,096 tokens on one card: what shared figures were measured for.
PlanInput lora_7b(int64_t sequences, PlanReference reference) {
  PlanInput input = apus::testing::lora_plan(apus::testing::qwen_7b(), 64, 1, parallel::Ddp());
  input.engine.recompute = Recompute::kNone;
  input.rows = RowProfile::of_length(4096, sequences);
  input.micro_batch_rows = 4;
  input.accumulation = 4;
  input.reference = reference;
  return input;
}

TEST(StepTime, IsNearWhatTheBestPeersReachOnAnH200) {
  const models::TokenFlops flops = flops_of(apus::testing::qwen_7b(), 4096);
  const Card card = find_card("H200");
  const StepTime sft = estimate_step(lora_7b(1, PlanReference::kNone), flops, card);
  EXPECT_NEAR(sft.tokens_per_second(), 17419, 0.25 * 17419);
  const StepTime dpo = estimate_step(lora_7b(2, PlanReference::kSameModel), flops, card);
  EXPECT_NEAR(dpo.tokens_per_second(), 11191, 0.25 * 11191);
  const StepTime cached = estimate_step(lora_7b(2, PlanReference::kCached), flops, card);
  EXPECT_NEAR(cached.tokens_per_second(), sft.tokens_per_second(), 0.01 * sft.tokens_per_second());
}

TEST(StepTime, RecomputeCostsAboutAnotherForward) {
  const models::TokenFlops flops = flops_of(apus::testing::qwen_7b(), 4096);
  PlanInput job = lora_7b(1, PlanReference::kNone);
  const double none = estimate_step(job, flops, find_card("H200")).total();
  job.engine.recompute = Recompute::kBlock;
  const double block = estimate_step(job, flops, find_card("H200")).total();
  EXPECT_GT(block / none, 1.25);
  EXPECT_LT(block / none, 1.55);
  job.engine.recompute = Recompute::kPartial;
  const double partial = estimate_step(job, flops, find_card("H200")).total();
  EXPECT_GT(partial, none);
  EXPECT_LT(partial, block);
}

TEST(StepTime, FullTrainingComputesWeightGradientsAndMovesThem) {
  const models::TokenFlops flops = flops_of(apus::testing::qwen_7b(), 4096);
  PlanInput job = apus::testing::full_plan(apus::testing::qwen_7b(), 8, parallel::Zero2());
  job.engine.recompute = Recompute::kNone;
  job.rows = RowProfile::of_length(4096, 1);
  job.accumulation = 4;
  const StepTime full = estimate_step(job, flops, find_card("H200"));
  const StepTime lora = estimate_step(lora_7b(1, PlanReference::kNone), flops, find_card("H200"));
  EXPECT_GT(full.matmul * 16 / 4, 1.35 * lora.matmul);  // the same rows a rank
  EXPECT_GT(full.communication, 0);
  EXPECT_EQ(lora.communication, 0);
}

TEST(FlopsPerToken, CountsForwardBackwardAndTheReferenceOnce) {
  const models::TokenFlops flops = flops_of(apus::testing::qwen_7b(), 4096);
  const PlanInput full = apus::testing::full_plan(apus::testing::qwen_7b(), 1, parallel::Ddp());
  EXPECT_DOUBLE_EQ(flops_per_token(full, flops), 3 * flops.matmul + 3 * flops.attention);
  PlanInput lora = lora_7b(1, PlanReference::kNone);
  EXPECT_DOUBLE_EQ(flops_per_token(lora, flops), 2 * flops.matmul + 3 * flops.attention)
      << "frozen weights have no gradient";
  lora.engine.recompute = Recompute::kBlock;
  EXPECT_DOUBLE_EQ(flops_per_token(lora, flops), 2 * flops.matmul + 3 * flops.attention);
  lora.reference = PlanReference::kSameModel;
  EXPECT_DOUBLE_EQ(flops_per_token(lora, flops), 3 * flops.matmul + 4 * flops.attention);
  lora.rows.mean_trained = lora.rows.mean_row / 2;
  const double head = 2.0 * static_cast<double>(lora.model.vocab_size * lora.model.hidden_size);
  EXPECT_DOUBLE_EQ(flops_per_token(lora, flops), 3 * (flops.matmul - head / 2) + 4 * flops.attention)
      << "prompts have no logits";
}

TEST(StepTime, ASlowLinkIsNotHidden) {
  const models::TokenFlops flops = flops_of(apus::testing::qwen_7b(), 1024);
  PlanInput job = apus::testing::full_plan(apus::testing::qwen_7b(), 8, parallel::Zero3());
  job.rows = RowProfile::of_length(1024, 1);
  const StepTime nvlink = estimate_step(job, flops, find_card("A100-80GB"));
  const StepTime pcie = estimate_step(job, flops, find_card("A100-PCIe-80GB"));
  EXPECT_GT(pcie.exposed, nvlink.exposed);
  const StepTime hosts = estimate_step(job, flops, find_card("A100-80GB"), {.cards_per_host = 4});
  EXPECT_GT(hosts.communication, nvlink.communication);
  job.engine.overlap_comm = false;
  const StepTime bare = estimate_step(job, flops, find_card("A100-80GB"));
  EXPECT_DOUBLE_EQ(bare.exposed, bare.communication);
}

TEST(StepTime, AToyTakesNoLessThanTheHostDoes) {
  const nlohmann::json toy = apus::testing::qwen_config({64, 128, 2, 4, 2});
  PlanInput job = apus::testing::lora_plan(toy, 4, 1, parallel::Ddp());
  job.engine.recompute = Recompute::kNone;
  job.rows = RowProfile::of_length(128, 1);
  job.accumulation = 16;
  const Card card = find_card("A100-40GB");
  const StepTime time = estimate_step(job, flops_of(toy, 128), card);
  // Two blocks: 7 products with 2 adapter matrices each, 2 norms, attention, activation; then norm and head.
  const double nodes = 2 * (7 + 2 + 2) + 2, kernels = nodes + 2 * 14;
  const double forward_and_backward = nodes * 7.9e-6 + (kernels + kernels + 2 * 14) * 1.5e-6;
  EXPECT_NEAR(time.host, 16 * forward_and_backward, 1e-9);
  EXPECT_LT(time.compute() + time.optimizer, time.host);
  EXPECT_DOUBLE_EQ(time.total(), time.host);
  EXPECT_DOUBLE_EQ(time.tokens_per_second(), 16 * 128 / time.host);
  EXPECT_LT(time.tokens_per_second(), 1e6);
  job.engine.recompute = Recompute::kBlock;
  EXPECT_NEAR(estimate_step(job, flops_of(toy, 128), card).host - time.host, 16 * kernels * 1.5e-6, 1e-9);
}

TEST(StepTime, TheHostDoesNotHoldALargeModelUp) {
  const StepTime time = estimate_step(lora_7b(1, PlanReference::kNone),
                                      flops_of(apus::testing::qwen_7b(), 4096), find_card("H200"));
  EXPECT_LT(time.host, 0.05 * time.total());
  EXPECT_DOUBLE_EQ(time.total(), time.compute() + time.optimizer + time.exposed);
}

TEST(StepTime, SaysWhatItAssumes) {
  const auto lines = step_time_assumptions(find_card("H200"), {});
  ASSERT_GE(lines.size(), 3u);
  EXPECT_NE(lines.front().find("not measurements"), std::string::npos);
  EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
    return line.find("2.2 us a tape node forward, 5.7 us backward, 1.5 us a launch") != line.npos;
  }));
}

}  // namespace
}  // namespace apus::train
