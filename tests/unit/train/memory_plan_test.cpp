#include "apus/train/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"
#include "apus/models/qwen2.h"
#include "apus/parallel/sharded_model.h"
#include "tests/support/policies.h"
#include "tests/unit/train/support/plan_models.h"

namespace apus::train {
namespace {

using parallel::Recompute;

constexpr double kGigabyte = 1e9;

/// The main job: a 14B model, LoRA of rank 64 on all projections, DPO, pairs of up to 4,096 tokens a
/// sequence.
PlanInput main_job(const parallel::ShardPolicy& policy, Recompute recompute) {
  PlanInput input = apus::testing::lora_plan(apus::testing::qwen_14b(), 64, 4, policy);
  input.engine.recompute = recompute;
  input.rows = RowProfile::of_length(4096, 2);
  input.accumulation = 16;
  input.reference = PlanReference::kSameModel;
  return input;
}

PlanInput small_job() {
  PlanInput input =
      apus::testing::full_plan(apus::testing::qwen_config({256, 688, 4, 8, 2}), 4, parallel::Zero2());
  input.rows = RowProfile::of_length(128, 1);
  input.accumulation = 2;
  return input;
}

double gigabytes(int64_t bytes) {
  return static_cast<double>(bytes) / kGigabyte;
}

TEST(MemoryPlan, TheMainJobsFrozenWeightsAreWholeUnderZero2AndCutUnderZero3) {
  const MemoryPlan zero2 = plan_memory(main_job(parallel::Zero2(), Recompute::kBlock));
  EXPECT_NEAR(gigabytes(zero2.peak().peak[PlanTerm::kFrozen]), 29.54 + 0.81, 0.01)
      << "with the rooms of its homes";
  const MemoryPlan zero3 = plan_memory(main_job(parallel::Zero3(), Recompute::kBlock));
  EXPECT_NEAR(gigabytes(zero3.peak().peak[PlanTerm::kFrozen]), 29.54 / 4, 0.02);
  EXPECT_GT(zero3.peak().peak[PlanTerm::kGathered], 0);
}

TEST(MemoryPlan, TheMainJobsOptimizerIsTheAdaptersAlone) {
  const PlanInput job = main_job(parallel::Zero2(), Recompute::kBlock);
  const auto trainable = static_cast<double>(job.model.trainable_elements());
  const PlanBytes peak = plan_memory(job).peak().peak;
  EXPECT_NEAR(gigabytes(peak[PlanTerm::kOptimizer]), trainable * 12 / 4 / kGigabyte, 0.01);
  EXPECT_NEAR(gigabytes(peak[PlanTerm::kTrainable]), trainable * 2 / kGigabyte, 0.01);
}

TEST(MemoryPlan, MoreRecomputeNeverTakesMore) {
  for (const parallel::ShardPolicy& policy :
       {parallel::ShardPolicy(parallel::Zero2()), parallel::ShardPolicy(parallel::Zero3())}) {
    const int64_t none = plan_memory(main_job(policy, Recompute::kNone)).tensor_bytes();
    const int64_t partial = plan_memory(main_job(policy, Recompute::kPartial)).tensor_bytes();
    const int64_t block = plan_memory(main_job(policy, Recompute::kBlock)).tensor_bytes();
    EXPECT_LT(partial, none) << policy.name;
    EXPECT_LT(block, partial) << policy.name;
  }
}

TEST(MemoryPlan, ThePeakIsAMomentAndNotASumOfMaxima) {
  const MemoryPlan plan = plan_memory(main_job(parallel::Zero2(), Recompute::kNone));
  PlanBytes most;
  for (const PhasePlan& phase : plan.phases) {
    for (size_t term = 0; term < kPlanTerms; ++term)
      most.bytes[term] = std::max(most.bytes[term], phase.peak.bytes[term]);
  }
  EXPECT_LT(plan.tensor_bytes(), most.total());
  for (const PhasePlan& phase : plan.phases) EXPECT_LE(phase.peak.total(), plan.tensor_bytes());
}

TEST(MemoryPlan, TheCheapestRecomputeThatFitsIsTaken) {
  const PlanInput job = main_job(parallel::Zero3(), Recompute::kNone);
  EXPECT_EQ(choose_recompute(job, int64_t{1} << 50), Recompute::kNone);
  EXPECT_EQ(choose_recompute(job, int64_t{1} << 20), Recompute::kBlock);
  PlanInput partial = job;
  partial.engine.recompute = Recompute::kPartial;
  EXPECT_EQ(choose_recompute(job, plan_memory(partial).total_bytes()), Recompute::kPartial);
}

TEST(MemoryPlan, StatesAreThoseOfTheEngineUnderEveryPolicy) {
  const models::Qwen2Config config{.vocab_size = 300, .num_hidden_layers = 3};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const parallel::ShardPolicy& policy : apus::testing::policies_for(2)) {
      models::Qwen2 model(config, at::kFloat);
      nn::make_trainable(model);
      PlanInput input{.model = shape_of(model),
                      .engine = {.policy = policy, .bucket_elements = 20'000, .compute_dtype = dtype},
                      .dtype = dtype,
                      .world = 2,
                      .rows = RowProfile::of_length(8, 1),
                      .device = PlanDevice::kHost};
      const auto rank = comm::make_fake_communicator({.size = 2});
      parallel::ShardedModel engine(model, *rank, input.engine);
      int64_t parameters = 0, states = 0;
      for (const auto& group : engine.groups()) {
        const bool aliased = dtype == at::kFloat;
        parameters += static_cast<int64_t>(group->buffer() ? group->own_params().nbytes()
                                                           : group->flat_params().nbytes());
        states += static_cast<int64_t>(group->exp_avg().nbytes() + group->exp_avg_sq().nbytes());
        if (!aliased) states += static_cast<int64_t>(group->masters().nbytes());
      }
      const PlanBytes peak = plan_memory(input).peak().peak;
      EXPECT_EQ(peak[PlanTerm::kTrainable], parameters) << policy.name;
      EXPECT_EQ(peak[PlanTerm::kOptimizer], states) << policy.name;
    }
  }
}

TEST(MemoryPlan, LongerRowsAndLargerMicroBatchesTakeMore) {
  PlanInput job = small_job();
  const int64_t once = plan_memory(job).tensor_bytes();
  job.micro_batch_rows = 2;
  const int64_t twice = plan_memory(job).tensor_bytes();
  EXPECT_GT(twice, once);
  job.micro_batch_rows = 1;
  job.rows = RowProfile::of_length(256, 1);
  EXPECT_GT(plan_memory(job).tensor_bytes(), once);
}

TEST(MemoryPlan, RowsThatNoLossReadsTakeNothingBehindTheLastAttention) {
  for (const PlanDevice device : {PlanDevice::kHost, PlanDevice::kCard}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kPartial, Recompute::kBlock}) {
      PlanInput job = small_job();
      job.device = device;
      job.engine.recompute = recompute;
      job.rows = RowProfile::of_length(4096, 1);
      const int64_t all_read = plan_memory(job).tensor_bytes();
      job.rows.longest_trained = 512;
      const int64_t few_read = plan_memory(job).tensor_bytes();
      job.engine.skip_unread_rows = false;
      EXPECT_LT(few_read, plan_memory(job).tensor_bytes());
      job.rows.longest_trained = 3800;  // more than 7/8
      const int64_t whole = plan_memory(job).tensor_bytes();
      job.engine.skip_unread_rows = true;
      EXPECT_EQ(plan_memory(job).tensor_bytes(), whole);
      EXPECT_LT(whole, all_read);
    }
  }
}

TEST(MemoryPlan, ASecondModelIsHeldBesideTheFirst) {
  PlanInput job = small_job();
  job.rows = RowProfile::of_length(64, 2);
  const MemoryPlan alone = plan_memory(job);
  job.reference = PlanReference::kSecondModel;
  const MemoryPlan both = plan_memory(job);
  EXPECT_EQ(both.peak().peak[PlanTerm::kReference], 2 * job.model.elements());
  EXPECT_GE(both.tensor_bytes() - alone.tensor_bytes(), 2 * job.model.elements());
}

TEST(MemoryPlan, OnAHostMappedWeightsCountBesideTheRanks) {
  PlanInput job = main_job(parallel::Zero2(), Recompute::kBlock);
  job.device = PlanDevice::kHost;
  const MemoryPlan plan = plan_memory(job);
  EXPECT_EQ(plan.peak().peak[PlanTerm::kFrozen], 0);
  EXPECT_NEAR(gigabytes(plan.mapped_bytes), 29.54, 0.01);
  job.mapped_weights = false;
  EXPECT_NEAR(gigabytes(plan_memory(job).peak().peak[PlanTerm::kFrozen]), 29.54, 0.01);
}

TEST(MemoryPlan, EvaluationIsAPhaseOnlyWhereThereIsOne) {
  PlanInput job = small_job();
  const auto phases = [](const MemoryPlan& plan) {
    std::set<PlanPhase> names;
    for (const PhasePlan& phase : plan.phases) names.insert(phase.phase);
    return names;
  };
  EXPECT_FALSE(phases(plan_memory(job)).contains(PlanPhase::kEvaluation));
  job.eval_batch_rows = 640;
  const MemoryPlan plan = plan_memory(job);
  EXPECT_TRUE(phases(plan).contains(PlanPhase::kEvaluation));
  EXPECT_EQ(plan.peak().phase, PlanPhase::kEvaluation);  // 640 rows at a time against one
}

int64_t saving(const PlanInput& job) {
  const MemoryPlan plan = plan_memory(job);
  return std::ranges::find(plan.phases, PlanPhase::kSave, &PhasePlan::phase)->peak[PlanTerm::kSaving];
}

TEST(MemoryPlan, SavingAnAdapterGathersItsMastersWhereTheyAreCut) {
  PlanInput job = main_job(parallel::Zero2(), Recompute::kBlock);
  EXPECT_NEAR(gigabytes(saving(job)), gigabytes(4 * job.model.trainable_elements()), 1e-3);
  job.engine.policy = parallel::Ddp();
  EXPECT_EQ(saving(job), 0);
}

TEST(MemoryPlan, AWholeModelIsSavedPieceByPiece) {
  PlanInput job = small_job();
  EXPECT_EQ(saving(job), 0) << "every rank holds what is written";
  job.engine.policy = parallel::Zero3();
  const int64_t embedding = int64_t{152064} * 256 * 2;
  EXPECT_NEAR(gigabytes(saving(job)), gigabytes(embedding), 0.01 * gigabytes(embedding));
  job.engine.policy.residency.parameters = memory::Residency::kHost;
  EXPECT_NEAR(gigabytes(saving(job)), gigabytes(embedding * 5 / 4), 0.01 * gigabytes(embedding))
      << "an own range on the host passes through the device";
}

TEST(MemoryPlan, WhatDoesNotFitTogetherIsRefused) {
  PlanInput job = small_job();
  job.engine.policy = parallel::HybridFsdp({.replicate = 3});
  EXPECT_THROW(plan_memory(job), ConfigError);
  job = small_job();
  job.rows = {};
  EXPECT_THROW(plan_memory(job), ConfigError);
  job = small_job();
  job.model.units.clear();
  EXPECT_THROW(plan_memory(job), ConfigError);
}

TEST(MemoryPlan, TheMarginIsPartOfWhatMustFit) {
  const MemoryPlan plan = plan_memory(small_job());
  EXPECT_EQ(plan.margin_bytes, margin_of(PlanDevice::kCard, plan.tensor_bytes()));
  EXPECT_TRUE(plan.fits(plan.total_bytes()));
  EXPECT_FALSE(plan.fits(plan.total_bytes() - 1));
  EXPECT_GT(margin_of(PlanDevice::kCard, 0), margin_of(PlanDevice::kHost, 0));
}

}  // namespace
}  // namespace apus::train
