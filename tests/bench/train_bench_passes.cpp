#include "tests/bench/train_bench_passes.h"

#include <ATen/ops/zeros.h>

#include <numeric>
#include <optional>
#include <utility>

#include "apus/train/sft_objective.h"
#include "train/on_device.h"
#include "train/step_sums.h"

namespace apus::bench {
namespace {

/// Micro-batch `index` of a step, from the rows in order, again and again.
data::Batch micro_batch(const TrainCase& job, const data::Dataset& rows, int64_t step, int64_t index,
                        const data::CollateOptions& options) {
  std::vector<int64_t> ordinals(static_cast<size_t>(job.batch));
  std::iota(ordinals.begin(), ordinals.end(), (step * job.accumulation + index) * job.batch);
  for (int64_t& ordinal : ordinals) ordinal %= rows.size();
  return rows.collate(ordinals, options);
}

std::vector<double> divisors_of_step(const train::Objective& objective,
                                     const std::vector<data::Batch>& step) {
  std::vector<int64_t> weights(objective.weights({}).size());
  for (const data::Batch& batch : step) {
    const std::vector<int64_t> own = objective.weights(batch);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] += own[i];
  }
  return train::divisors_of(weights);
}

}  // namespace

void run_passes(const TrainCase& job, parallel::ShardedModel& engine,
                const std::vector<std::string>& adapters, const data::Dataset& rows,
                const train::TrainerOptions& options,
                const std::function<bool(const train::StepReport&)>& on_step) {
  const train::SftObjective objective({.adapters = adapters});
  const at::Device device = train::device_of(engine);
  std::optional<train::ComingValues> before;
  for (int64_t step = 0;; ++step) {
    std::vector<data::Batch> batches;
    for (int64_t i = 0; i < job.accumulation; ++i)
      batches.push_back(micro_batch(job, rows, step, i, options.collate));
    const std::vector<double> divisors = divisors_of_step(objective, batches);
    train::StepSums sums(objective.metrics().size());
    for (size_t i = 0; i < batches.size(); ++i) {
      const auto result = objective.run_in_step(engine, train::on_device(engine, batches[i]), divisors);
      const at::Tensor loss = train::divided(result.loss_sums, divisors);
      sums.add({loss}, result.metric_sums);
      const bool last = i + 1 == batches.size();
      engine.backward(loss, last ? parallel::MicroBatchPlace::kLast : parallel::MicroBatchPlace::kNotLast);
    }
    for (const auto& group : engine.groups()) group->reset_grads();
    train::ComingValues values = sums.send(at::zeros({1}, at::TensorOptions(at::kDouble).device(device)));
    if (before) {
      const std::vector<double> losses = before->read().losses;
      if (on_step({.step = step, .loss = std::accumulate(losses.begin(), losses.end(), 0.0)})) return;
    }
    before.emplace(std::move(values));
  }
}

}  // namespace apus::bench
