// What a reference that is computed ahead saves: DPO with LoRA, the same steps with the reference's pass in
// each and without it, alternating, in one process.
//
// A decoder of 8 layers and width 256, 16 pairs a step in micro-batches of 2, 96 to 160 tokens an answer;
// each run starts from the same weights. Correctness in the same run: the losses of both must agree within
// 1e-6. A step of training costs a forward of the reference, a forward and a backward of the policy, and with
// recompute another forward; so at best 1.5 (without) or 1.33 times faster. Precomputing itself costs one
// pass over the data for the whole job and is printed beside.
//
//   apus_bench_dpo_reference [rounds]   (OMP_NUM_THREADS says how many cores)
//
// Prints the fastest step of each and returns 1 below the bar of 1.25 or where numbers differ.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "apus/base/philox.h"
#include "apus/comm/fake_communicator.h"
#include "apus/models/init_random.h"
#include "apus/models/qwen2.h"
#include "apus/peft/lora.h"
#include "apus/train/dpo_trainer.h"
#include "apus/train/precompute_reference.h"

namespace apus::bench {
namespace {

constexpr double kBar = 1.25;
constexpr int64_t kPairs = 16, kMicroBatch = 2, kVocabulary = 2048;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<const data::Dataset> make_rows() {
  const PhiloxSequence random(3, "bench rows");
  uint64_t drawn = 0;
  const auto ids = [&](int64_t count) {
    std::vector<int32_t> made;
    for (int64_t i = 0; i < count; ++i)
      made.push_back(static_cast<int32_t>(random.uniform(drawn++) * (kVocabulary - 1)));
    return made;
  };
  std::vector<data::DpoRow> rows;
  for (int64_t row = 0; row < kPairs; ++row) {
    rows.push_back(
        {.prompt_ids = ids(32), .chosen_ids = ids(96 + row * 4), .rejected_ids = ids(160 - row * 4)});
  }
  return std::make_shared<data::DpoDataset>(std::move(rows));
}

/// A model with a new adapter on an engine of one rank.
struct Policy {
  explicit Policy(parallel::Recompute recompute) {
    models::init_random(model, {.seed = 1, .standard_deviation = 0.05});
    peft::LoraConfig config{.r = 16, .lora_alpha = 32};
    config.targets.all_linear = true;
    peft::apply_lora(model, config, "default", {.seed = 2});
    engine = std::make_unique<parallel::ShardedModel>(
        model, *dp, parallel::ShardedModelOptions{.policy = parallel::Ddp(), .recompute = recompute});
  }

  models::Qwen2 model{models::Qwen2Config{.vocab_size = kVocabulary,
                                          .hidden_size = 256,
                                          .intermediate_size = 704,
                                          .num_hidden_layers = 8,
                                          .num_attention_heads = 8,
                                          .num_key_value_heads = 4,
                                          .head_dim = 32,
                                          .tie_word_embeddings = true},
                      at::kFloat};
  std::unique_ptr<comm::Communicator> dp = comm::make_fake_communicator({});
  std::unique_ptr<parallel::ShardedModel> engine;
};

/// What one run of a few steps took and gave.
struct Run {
  double fastest_step = std::numeric_limits<double>::infinity();
  double precompute_seconds = 0.0;
  std::vector<double> losses;
};

Run run_steps(parallel::Recompute recompute, bool ahead) {
  constexpr int64_t kSteps = 3;
  Policy policy(recompute);
  SystemClock clock;
  NullLogger logger;
  Run run;
  train::Reference reference = train::Reference::adapters_off();
  std::shared_ptr<const data::Dataset> rows = make_rows();
  if (ahead) {
    const double start = seconds_now();
    rows = train::precompute_reference(rows, reference, *policy.engine, {.clock = &clock, .logger = &logger});
    run.precompute_seconds = seconds_now() - start;
    reference.is_precomputed = true;
  }
  double last = 0.0;
  train::TrainerContext context{.clock = &clock, .logger = &logger};
  context.callbacks.on_step = [&](const train::StepReport& report) {
    run.losses.push_back(report.loss);
    run.fastest_step = std::min(run.fastest_step, seconds_now() - last);
    last = seconds_now();
  };
  train::TrainerOptions options{
      .max_steps = kSteps, .micro_batch_rows = kMicroBatch, .accumulation = kPairs / kMicroBatch};
  options.update.lr = 1e-4;
  train::DpoTrainer trainer(*policy.engine, {.dpo = {.reference = reference}, .trainer = options}, context);
  last = seconds_now();
  trainer.run(rows);
  return run;
}

int compare(const char* name, parallel::Recompute recompute, int rounds) {
  Run online, ahead;
  double difference = 0.0;
  for (int round = 0; round < rounds; ++round) {
    const Run one = run_steps(recompute, false), other = run_steps(recompute, true);
    for (size_t step = 0; step < one.losses.size(); ++step)
      difference = std::max(difference, std::abs(one.losses[step] - other.losses.at(step)));
    if (one.fastest_step < online.fastest_step) online = one;
    if (other.fastest_step < ahead.fastest_step) ahead = other;
  }
  const double gain = online.fastest_step / ahead.fastest_step;
  std::printf(
      "%-20s online %.3f s/step, ahead %.3f s/step: %.2f x; precomputing %.3f s; losses differ by %.1e\n",
      name, online.fastest_step, ahead.fastest_step, gain, ahead.precompute_seconds, difference);
  return gain >= kBar && difference <= 1e-6 ? 0 : 1;
}

}  // namespace
}  // namespace apus::bench

int main(int argc, char** argv) {
  using apus::parallel::Recompute;
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  const int without = apus::bench::compare("without recompute", Recompute::kNone, rounds);
  const int with = apus::bench::compare("recompute by block", Recompute::kBlock, rounds);
  return without + with == 0 ? 0 : 1;
}
