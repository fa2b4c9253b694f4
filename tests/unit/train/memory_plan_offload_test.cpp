// Plans of jobs whose states and activations lie on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/train/memory_plan.h"
#include "apus/train/memory_plan_job.h"
#include "apus/train/memory_plan_rank.h"
#include "apus/train/step_time.h"
#include "tests/unit/train/support/plan_models.h"

namespace apus::train {
namespace {

using memory::Residency;
using memory::StateResidency;
using parallel::Recompute;

constexpr StateResidency kOptimizer{.optimizer = Residency::kHost};
constexpr StateResidency kAll{Residency::kHost, Residency::kHost, Residency::kHost};

/// All of a 7B model in bf16 on cards: 4,096 tokens a micro-batch.
PlanInput full_7b(parallel::ShardPolicy policy, const StateResidency& residency, int world = 1) {
  policy.residency = residency;
  PlanInput input = apus::testing::full_plan(apus::testing::qwen_7b(), world, policy);
  input.rows = RowProfile::of_length(4096, 1);
  input.rows.packed = true;
  input.accumulation = 4;
  input.engine.head_chunk_tokens = 0;
  return input;
}

/// What the device holds while parameters are updated.
int64_t in_update(const MemoryPlan& plan, PlanTerm term) {
  return std::ranges::find(plan.phases, PlanPhase::kUpdate, &PhasePlan::phase)->peak[term];
}

double gibibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

TEST(OffloadPlan, WithoutOffloadNothingLiesOnTheHost) {
  EXPECT_EQ(plan_memory(full_7b(parallel::Zero2(), {})).host_bytes(), 0);
}

TEST(OffloadPlan, AnOptimizerOnTheHostTakesItsStatesAndTheGradientsThatItReads) {
  const PlanInput job = full_7b(parallel::Zero2(), kOptimizer, 4);
  const MemoryPlan with = plan_memory(job), without = plan_memory(full_7b(parallel::Zero2(), {}, 4));
  const auto own = static_cast<double>(job.model.elements()) / 4;
  EXPECT_EQ(with.host[PlanTerm::kOptimizer], without.phases.back().peak[PlanTerm::kOptimizer]);
  EXPECT_NEAR(static_cast<double>(with.host[PlanTerm::kOptimizer]), 12 * own, 0.01 * 12 * own);
  EXPECT_NEAR(static_cast<double>(with.host[PlanTerm::kGradients]), 4 * own, 0.01 * 4 * own);
  EXPECT_GT(in_update(with, PlanTerm::kGradients), 0) << "they add up on the device";
}

TEST(OffloadPlan, TheDeviceKeepsSlotsForThePiecesThatItUpdates) {
  PlanInput job = full_7b(parallel::Zero2(), kOptimizer, 4);
  const int64_t piece = job.engine.host_piece_elements;
  EXPECT_EQ(in_update(plan_memory(job), PlanTerm::kOptimizer), 4 * 12 * piece);
  job.engine.optimizer_states = memory::OptimizerStates::kBf16;
  EXPECT_EQ(in_update(plan_memory(job), PlanTerm::kOptimizer), 4 * 6 * piece);
  job.engine.host_device_share = 0.0;
  EXPECT_EQ(in_update(plan_memory(job), PlanTerm::kOptimizer), 0);
  EXPECT_EQ(in_update(plan_memory(full_7b(parallel::Zero3(), kAll)), PlanTerm::kOptimizer), 0)
      << "neither gradients nor parameters are there";
}

TEST(OffloadPlan, EveryResidencyMovesItsOwnTermAndNoOther) {
  const MemoryPlan none = plan_memory(full_7b(parallel::Zero3(), {}, 2));
  const auto moved = [&](const StateResidency& residency, PlanTerm term) {
    const MemoryPlan plan = plan_memory(full_7b(parallel::Zero3(), residency, 2));
    return plan.host[term] > 0 && in_update(plan, term) < in_update(none, term);
  };
  EXPECT_TRUE(moved(kOptimizer, PlanTerm::kOptimizer));
  EXPECT_FALSE(moved(kOptimizer, PlanTerm::kTrainable));
  EXPECT_FALSE(moved(kOptimizer, PlanTerm::kGradients)) << "a copy travels, the sum stays";
  EXPECT_TRUE(moved({.optimizer = Residency::kHost, .gradients = Residency::kHost}, PlanTerm::kGradients));
  EXPECT_TRUE(moved({.parameters = Residency::kHost}, PlanTerm::kTrainable));
  EXPECT_FALSE(moved({.parameters = Residency::kHost}, PlanTerm::kOptimizer));
}

TEST(OffloadPlan, AMasterIsTheParameterOnlyWhereBothLieOnOneSide) {
  PlanInput job = full_7b(parallel::Zero3(), {.optimizer = Residency::kHost, .parameters = Residency::kHost});
  job.engine.optimizer_states = memory::OptimizerStates::kBf16;
  const int64_t together = plan_memory(job).host[PlanTerm::kOptimizer];
  job.engine.policy.residency = kOptimizer;
  EXPECT_EQ(plan_memory(job).host[PlanTerm::kOptimizer] * 2, together * 3);
}

TEST(OffloadPlan, TheSevenBillionJobOfZero3OffloadFitsThirtyGibibytes) {
  PlanInput job = full_7b(parallel::Zero3(), kAll);
  job.engine.optimizer_states = memory::OptimizerStates::kBf16;
  job.engine.grad_accum_dtype = at::kBFloat16;
  const MemoryPlan plan = plan_memory(job);
  EXPECT_LT(gibibytes(plan.tensor_bytes()), 30);
  EXPECT_LT(gibibytes(plan.peak().peak[PlanTerm::kGathered]), 3) << "two blocks, embedding or head";
  const auto elements = static_cast<double>(job.model.elements());
  EXPECT_NEAR(static_cast<double>(plan.host_bytes()), 8 * elements + 4 * 544.997e6, 0.02 * 8 * elements)
      << "parameters, two moments and gradients of 2 bytes, and two of the largest group's on their way";
}

/// What a step held on an H200 (apus_bench_train kind=full recompute=block B=1 policy=zero3), in GiB.
struct MeasuredJob {
  nlohmann::json config;
  StateResidency residency;
  int64_t accumulation = 1;
  double gibibytes = 0.0;
};

TEST(OffloadPlan, ATiedHeadsGradientStandsBesideTheEmbeddingsOfTheMicroBatchBefore) {
  nlohmann::json half = apus::testing::qwen_config({896, 4864, 24, 14, 2});
  nlohmann::json three = apus::testing::qwen_config({2048, 11008, 36, 16, 2});
  for (nlohmann::json* config : {&half, &three}) {
    (*config)["tie_word_embeddings"] = true;
    (*config)["vocab_size"] = 151936;
  }
  const StateResidency gradients{.optimizer = Residency::kHost, .gradients = Residency::kHost};
  for (const MeasuredJob& job : {MeasuredJob{half, {}, 1, 9.31}, MeasuredJob{half, {}, 4, 11.12},
                                 MeasuredJob{half, kOptimizer, 4, 5.97},
                                 MeasuredJob{half, gradients, 4, 4.32}, MeasuredJob{half, kAll, 1, 2.25},
                                 MeasuredJob{half, kAll, 4, 2.79}, MeasuredJob{three, kAll, 4, 5.31}}) {
    parallel::ShardPolicy policy = parallel::Zero3();
    policy.residency = job.residency;
    PlanInput input = apus::testing::full_plan(job.config, 1, policy);
    input.engine.recompute = Recompute::kBlock;
    input.engine.initial_values = parallel::InitialValues::kOwn;
    input.engine.head_chunk_tokens = 0;
    input.model.attention_heads = job.config.at("num_attention_heads").get<int64_t>();
    input.rows = RowProfile::of_length(4096, 1);
    input.rows.packed = true;
    input.accumulation = job.accumulation;
    EXPECT_NEAR(gibibytes(plan_memory(input).tensor_bytes()), job.gibibytes, 0.03 * job.gibibytes)
        << job.config.at("hidden_size") << ", accumulation " << job.accumulation;
  }
}

TEST(OffloadPlan, ActivationsLeaveAllButTheNeighbours) {
  PlanInput job = full_7b(parallel::Zero2(), {});
  job.rows = RowProfile::of_length(16384, 1);
  const MemoryPlan before = plan_memory(job);
  job.engine.activations = Residency::kHost;
  const MemoryPlan after = plan_memory(job);
  const int64_t hidden = int64_t{16384} * 3584 * 2;
  EXPECT_EQ(after.host[PlanTerm::kActivations], 27 * hidden) << "the last block's stays";
  EXPECT_LT(after.tensor_bytes(), before.tensor_bytes());
  job.engine.recompute = Recompute::kNone;
  EXPECT_EQ(plan_memory(job).host_bytes(), 0) << "tapes are not moved";
  job.engine.recompute = Recompute::kBlock;
  job.engine.recompute_blocks = std::vector<int64_t>{0, 4, 27};
  EXPECT_EQ(plan_memory(job).host[PlanTerm::kActivations], 2 * hidden);
}

TEST(OffloadPlan, ARankOnTheHostHoldsBothSides) {
  PlanInput job = full_7b(parallel::Zero2(), kOptimizer, 2);
  job.device = PlanDevice::kHost;
  job.engine.head_chunk_tokens = 256;
  const MemoryPlan with = plan_memory(job);
  job.engine.policy.residency = {};
  const MemoryPlan without = plan_memory(job);
  EXPECT_GE(with.tensor_bytes(), without.tensor_bytes()) << "nothing is won by moving to where one is";
  EXPECT_GT(with.peak().peak[PlanTerm::kOptimizer], 0);
}

TEST(OffloadTime, AnUpdateOnTheHostHidesBehindTheNextForwardAtMost) {
  const auto flops =
      apus::testing::builtin_models().find("qwen2").token_flops(apus::testing::qwen_7b(), 4096);
  const auto time = [&](const StateResidency& residency, int64_t accumulation) {
    PlanInput job = full_7b(parallel::Zero3(), residency);
    job.accumulation = accumulation;
    return estimate_step(job, flops, find_card("H200"));
  };
  EXPECT_EQ(time({}, 4).offload.copies, 0);
  const StepTime optimizer = time(kOptimizer, 4);
  EXPECT_EQ(optimizer.optimizer, 0);
  EXPECT_GT(optimizer.offload.update, 0);
  EXPECT_GT(optimizer.offload.exposed, 0);
  EXPECT_LE(optimizer.offload.exposed, optimizer.offload.update + optimizer.offload.copies);
  EXPECT_GT(time(kAll, 4).offload.copies, optimizer.offload.copies);
  const double few = time(kOptimizer, 4).total() / time({}, 4).total();
  const double many = time(kOptimizer, 64).total() / time({}, 64).total();
  EXPECT_LT(many, few) << "more micro-batches a step, the same update";
}

TEST(OffloadTime, HostAndDeviceEndTheUpdateTogether) {
  const auto flops =
      apus::testing::builtin_models().find("qwen2").token_flops(apus::testing::qwen_7b(), 4096);
  PlanInput job = full_7b(parallel::Zero2(), kOptimizer);
  const auto exposed = [&](std::optional<double> share) {
    job.engine.host_device_share = share;
    return estimate_step(job, flops, find_card("H200"), {.host_memory_bandwidth = 190e9}).offload.exposed;
  };
  EXPECT_LT(exposed({}), 0.8 * exposed(0.0));
  EXPECT_LT(exposed({}), exposed(0.95));
}

/// A folder with the config of a 7B model and nothing else.
class OffloadJob : public ::testing::Test {
 protected:
  JobPlan plan(const StateResidency& residency, std::optional<int64_t> host_bytes) {
    JobPlan plan{.input = full_7b(parallel::Zero3(), residency, 8)};
    plan.memory = plan_memory(plan.input);
    plan.card = find_card("A100-80GB");
    plan.device_bytes = plan.card->memory_bytes;
    plan.local_world = 8;
    plan.host_bytes = host_bytes;
    return plan;
  }
};

TEST_F(OffloadJob, SaysWhatARankAndAMachinePinAndWhatThereIs) {
  const std::string text = to_text(plan(kAll, int64_t{512} << 30));
  EXPECT_NE(text.find("pinned host memory: "), std::string::npos) << text;
  EXPECT_NE(text.find("a machine of 8 ranks of 512.00 GiB available there: fits"), std::string::npos) << text;
  EXPECT_EQ(to_text(plan({}, int64_t{512} << 30)).find("pinned"), std::string::npos);
  const nlohmann::ordered_json json = to_json(plan(kAll, int64_t{512} << 30));
  EXPECT_TRUE(json["host_fits"].get<bool>());
  EXPECT_GT(json["memory"]["host"]["total"].get<int64_t>(), 0);
}

TEST(OffloadRanking, WaysThatOffloadAreTriedWhereNoOtherFits) {
  const auto flops =
      apus::testing::builtin_models().find("qwen2").token_flops(apus::testing::qwen_7b(), 4096);
  const auto offloaded = [&](const Card& card, int world, std::optional<int64_t> host) {
    RankOptions options{.card = card, .max_micro_batch_rows = 1, .host_bytes = host};
    std::vector<RankedPlan> found;
    for (RankedPlan& plan : rank_plans(full_7b(parallel::Zero2(), {}, world), flops, options))
      if (plan.offloads()) found.push_back(std::move(plan));
    return found;
  };
  EXPECT_TRUE(offloaded(find_card("H200"), 8, {}).empty()) << "sharded states fit there";
  const std::vector<RankedPlan> small = offloaded(find_card("A100-40GB"), 1, {});
  ASSERT_FALSE(small.empty());
  EXPECT_TRUE(small.front().fits);
  EXPECT_TRUE(small.front().flags().starts_with("--deepspeed zero")) << small.front().flags();
  EXPECT_NE(small.front().flags().find("_offload --per"), std::string::npos) << small.front().flags();
  EXPECT_FALSE(offloaded(find_card("A100-40GB"), 1, int64_t{64} << 30).front().fits)
      << "of 64 GiB on the host";
}

TEST_F(OffloadJob, IsRefusedWhereTheMachineHasTooLittleWithWhatToChange) {
  const JobPlan small = plan(kAll, int64_t{64} << 30);
  EXPECT_NE(summary_line(small).find("DOES NOT FIT"), std::string::npos);
  try {
    require_host_memory(small);
    FAIL() << "expected a refusal";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("64.00 GiB available"), std::string::npos) << text;
    EXPECT_NE(text.find("--optim adamw_bf16"), std::string::npos) << text;
    EXPECT_NE(text.find("offload the optimizer alone"), std::string::npos) << text;
  }
  EXPECT_NO_THROW(require_host_memory(plan(kAll, std::nullopt))) << "unknown";
  EXPECT_NO_THROW(require_host_memory(plan({}, 0)));
}

}  // namespace
}  // namespace apus::train
