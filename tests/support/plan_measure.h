#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "apus/comm/device_mesh.h"
#include "apus/data/collator.h"
#include "apus/train/memory_plan.h"
#include "apus/train/memory_plan_shape.h"
#include "tests/support/memory_meter.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tiny_training.h"

/// A plan beside what a rank really holds: tensors that its thread allocates while it builds a model, and
/// while it trains two steps through the Trainer.
namespace apus::testing {

/// One configuration: a job, and the model that it trains.
struct PlanCase {
  std::string name;
  Job job = Job::kFullSft;
  parallel::ShardPolicy policy = parallel::Ddp();
  int world = 1;
  parallel::Recompute recompute = parallel::Recompute::kNone;
  int64_t micro_batch_rows = 2;
  int64_t length = 96;
  int64_t accumulation = 2;
  at::ScalarType dtype = at::kFloat;
  data::BatchLayout layout = data::BatchLayout::kPadded;
  memory::StateResidency residency = {};
  memory::Residency activations = memory::Residency::kDevice;
  models::Qwen2Config config;
  int64_t lora_rank = 16;
  int64_t bucket_elements = 200'000'000;
  int64_t head_chunk_tokens = 128;
};

inline void PrintTo(const PlanCase& the, std::ostream* out) {
  *out << the.name;
}

inline models::Qwen2Config qwen_sizes(int64_t vocab, int64_t hidden, int64_t ffn, int64_t layers) {
  return {.vocab_size = vocab,
          .hidden_size = hidden,
          .intermediate_size = ffn,
          .num_hidden_layers = layers,
          .num_attention_heads = hidden / 32,
          .num_key_value_heads = hidden / 64,
          .head_dim = 32};
}

inline parallel::ShardedModelOptions plan_engine(const PlanCase& the) {
  parallel::ShardPolicy policy = the.policy;
  policy.residency = the.residency;
  return {.policy = policy,
          .recompute = the.recompute,
          .activations = the.activations,
          .bucket_elements = the.bucket_elements,
          .compute_dtype = the.dtype,
          .head_chunk_tokens = the.head_chunk_tokens,
          .initial_values = parallel::InitialValues::kOwn};
}

inline std::unique_ptr<models::Qwen2> plan_model(const PlanCase& the, bool frozen) {
  auto model = std::make_unique<models::Qwen2>(the.config, the.dtype);
  models::init_random(*model, {.seed = 3, .standard_deviation = 0.02});
  if (frozen) return model;
  if (is_full(the.job)) {
    nn::make_trainable(*model);
    return model;
  }
  peft::LoraConfig config{.r = the.lora_rank, .lora_alpha = 8};
  config.targets.all_linear = true;
  peft::apply_lora(*model, config, "default", {.seed = 5});
  return model;
}

/// Every row of one length; in DPO both answers take half of it.
inline data::Batch plan_batch(const PlanCase& the) {
  std::vector<int64_t> ordinals;
  std::vector<data::SftRow> texts;
  std::vector<data::DpoRow> pairs;
  const std::vector<int32_t> ids(static_cast<size_t>(the.length), 5);
  const std::vector<int32_t> half(ids.begin(), ids.begin() + the.length / 2);
  for (int64_t row = 0; row < the.micro_batch_rows; ++row) {
    ordinals.push_back(row);
    texts.push_back({.input_ids = ids, .labels = ids});
    pairs.push_back({.prompt_ids = half, .chosen_ids = half, .rejected_ids = half});
  }
  const data::CollateOptions options{.layout = the.layout};
  return is_dpo(the.job) ? data::collate_dpo(pairs, ordinals, options)
                         : data::collate_sft(texts, ordinals, options);
}

inline train::PlanInput plan_input(const PlanCase& the, nn::CausalLm& model) {
  train::PlanInput input{.model = train::shape_of(model),
                         .engine = plan_engine(the),
                         .dtype = the.dtype,
                         .world = the.world,
                         .micro_batch_rows = the.micro_batch_rows,
                         .accumulation = the.accumulation,
                         .batches_ahead = 0,
                         .device = train::PlanDevice::kHost,
                         .mapped_weights = false};
  input.model.attention_heads = the.config.num_attention_heads;
  input.rows = train::RowProfile::of_length(the.length, is_dpo(the.job) ? 2 : 1);
  input.rows.longest_trained = is_dpo(the.job) ? the.length : the.length - 1;
  input.rows.packed = the.layout != data::BatchLayout::kPadded;
  if (the.job == Job::kLoraDpo) input.reference = train::PlanReference::kSameModel;
  if (the.job == Job::kFullDpo) input.reference = train::PlanReference::kSecondModel;
  return input;
}

inline int64_t planned(const train::MemoryPlan& plan, train::PlanPhase phase) {
  for (const train::PhasePlan& part : plan.phases) {
    if (part.phase == phase) return part.peak.total();
  }
  return 0;
}

inline std::string terms_of(const train::MemoryPlan& plan, train::PlanPhase phase) {
  std::string text;
  for (const train::PhasePlan& part : plan.phases) {
    if (part.phase != phase) continue;
    for (size_t term = 0; term < train::kPlanTerms; ++term) {
      const auto name = static_cast<train::PlanTerm>(term);
      if (part.peak[name] > 0) {
        text += "\n  " + std::string(train::term_name(name)) + " " + std::to_string(part.peak[name]);
      }
    }
  }
  return text;
}

/// What a rank held at most while it loaded, and over two steps.
struct Measured {
  int64_t load = 0;
  int64_t live = 0;
  int64_t steps = 0;
};

inline Measured measure(const PlanCase& the, std::shared_ptr<comm::Communicator> world,
                        train::MemoryPlan& plan) {
  const comm::DeviceMesh mesh(std::move(world), the.policy.mesh());
  Measured measured;
  MemoryMeter meter;
  const auto model = plan_model(the, false);
  const auto reference_model = the.job == Job::kFullDpo ? plan_model(the, true) : nullptr;
  plan = train::plan_memory(plan_input(the, *model));
  meter.reset_peak();
  parallel::ShardedModelOptions options = plan_engine(the);
  parallel::ShardedModel engine(*model, mesh, options);
  std::unique_ptr<parallel::ShardedModel> reference;
  options.use = parallel::ModelUse::kReference;
  if (reference_model) reference = std::make_unique<parallel::ShardedModel>(*reference_model, mesh, options);
  measured.load = meter.peak_bytes();
  measured.live = meter.live_bytes();
  SystemClock clock;
  NullLogger logger;
  train::Trainer trainer(engine, tiny_objective(the.job, reference.get()), train::TrainerOptions{},
                         {.clock = &clock, .logger = &logger});
  const std::vector<data::Batch> batches(static_cast<size_t>(the.accumulation), plan_batch(the));
  meter.reset_peak();
  for (int step = 0; step < 2; ++step) trainer.step(batches, 1e-4);
  measured.steps = meter.peak_bytes();
  return measured;
}

/// One rank's measured peaks against the plan's, both sides, for loading and for training.
inline void expect_within_ten_percent(const PlanCase& the) {
  run_ranks(the.world, [&](std::shared_ptr<comm::Communicator> world) {
    const int rank = world->rank();
    train::MemoryPlan plan;
    const Measured measured = measure(the, std::move(world), plan);
    using enum train::PlanPhase;
    const auto steps = static_cast<double>(std::max(planned(plan, kStep), planned(plan, kUpdate)));
    const auto loading = static_cast<double>(planned(plan, kLoad));
    const auto peak = static_cast<double>(measured.steps), load = static_cast<double>(measured.load);
    EXPECT_NEAR(steps, peak, 0.1 * peak) << the.name << ", rank " << rank << ": step" << terms_of(plan, kStep)
                                         << "\nupdate" << terms_of(plan, kUpdate);
    EXPECT_NEAR(loading, load, 0.1 * load)
        << the.name << ", rank " << rank << ": load" << terms_of(plan, kLoad);
    if (rank > 0) return;
    ::testing::Test::RecordProperty("measured_bytes", std::to_string(measured.steps));
    ::testing::Test::RecordProperty("planned_bytes", std::to_string(static_cast<int64_t>(steps)));
    std::printf(
        "PLAN %-40s measured %8.2f planned %8.2f (%+.1f %%)  load %8.2f %8.2f (%+.1f %%) live %8.2f\n",
        the.name.c_str(), peak / 1e6, steps / 1e6, 100 * (steps / peak - 1), load / 1e6, loading / 1e6,
        100 * (loading / load - 1), static_cast<double>(measured.live) / 1e6);
  });
}

}  // namespace apus::testing
