#include "apus/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/philox.h"

namespace apus::data {
namespace {

constexpr double kMaxRowsAStep = 1e15;
constexpr double kMaxSteps = 1e15;

}  // namespace

Sampler::Sampler(SamplerOptions options) : options_(options) {
  APUS_CHECK(options_.rows >= 0, ConfigError, "sampler: rows is ", options_.rows, ", expected 0 or more");
}

std::vector<int64_t> Sampler::order(int64_t epoch) const {
  std::vector<int64_t> order(static_cast<size_t>(options_.rows));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!options_.shuffle) return order;
  const PhiloxSequence draws(options_.seed, "data/order/epoch " + std::to_string(epoch));
  for (size_t last = order.size(); last > 1; --last)
    std::swap(order[last - 1], order[draws.below(order.size() - last, last)]);
  return order;
}

StepPlan::StepPlan(StepPlanOptions options) : options_(options), used_rows_(options.rows) {
  APUS_CHECK(options_.micro_batch_rows > 0 && options_.world > 0 && options_.accumulation > 0, ConfigError,
             "steps: micro-batch ", options_.micro_batch_rows, ", world ", options_.world,
             " and accumulation ", options_.accumulation, " must be 1 or more");
  const double product = static_cast<double>(options_.micro_batch_rows) *
                         static_cast<double>(options_.world) * static_cast<double>(options_.accumulation);
  APUS_CHECK(product < kMaxRowsAStep, ConfigError, "steps: micro-batch ", options_.micro_batch_rows,
             " x world ", options_.world, " x accumulation ", options_.accumulation, " is beyond ",
             kMaxRowsAStep, " rows a step");
  APUS_CHECK(options_.rows > 0, ConfigError, "steps: there are no rows to train on");
  if (!options_.drop_last) return;
  const int64_t set = options_.micro_batch_rows * options_.world;
  used_rows_ -= used_rows_ % set;
  APUS_CHECK(used_rows_ > 0, ConfigError, "dataloader_drop_last leaves no step: ", options_.rows,
             " rows are fewer than micro-batch ", options_.micro_batch_rows, " x world ", options_.world,
             " = ", set, "; turn it off or give more rows");
}

int64_t StepPlan::rows_a_step() const {
  return options_.micro_batch_rows * options_.world * options_.accumulation;
}

int64_t StepPlan::steps_per_epoch() const {
  return (used_rows_ + rows_a_step() - 1) / rows_a_step();
}

int64_t StepPlan::total_steps(double epochs) const {
  const double steps = std::ceil(epochs * static_cast<double>(steps_per_epoch()));
  APUS_CHECK(std::isfinite(steps) && steps >= 0 && steps < kMaxSteps, ConfigError, "--num_train_epochs ",
             epochs, " x ", steps_per_epoch(), " steps an epoch: expected 0 to ", kMaxSteps, " steps in all");
  return static_cast<int64_t>(steps);
}

OrderRange StepPlan::step_range(int64_t step) const {
  APUS_CHECK(step >= 0 && step < steps_per_epoch(), ConfigError, "step ", step, " is outside the epoch of ",
             steps_per_epoch(), " steps");
  const int64_t first = step * rows_a_step();
  return {first, std::min(rows_a_step(), used_rows_ - first)};
}

int64_t StepPlan::micro_batches(int64_t step) const {
  const int64_t set = options_.micro_batch_rows * options_.world;
  return (step_range(step).count + set - 1) / set;
}

OrderRange StepPlan::micro_batch_range(int64_t step, int64_t micro_batch, int64_t rank) const {
  const OrderRange whole = step_range(step);
  APUS_CHECK(rank >= 0 && rank < options_.world, ConfigError, "rank ", rank, " is outside the world of ",
             options_.world);
  APUS_CHECK(micro_batch >= 0 && micro_batch < micro_batches(step), ConfigError, "micro-batch ", micro_batch,
             " is outside step ", step, " with ", micro_batches(step));
  const int64_t offset = (micro_batch * options_.world + rank) * options_.micro_batch_rows;
  const int64_t count = std::clamp<int64_t>(whole.count - offset, 0, options_.micro_batch_rows);
  return {whole.first + std::min(offset, whole.count), count};
}

}  // namespace apus::data
