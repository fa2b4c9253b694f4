#include "train/step_sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "apus/base/error.h"

namespace apus::train {

std::vector<double> divisors_of(const std::vector<int64_t>& weights) {
  std::vector<double> divisors;
  for (const int64_t weight : weights) divisors.push_back(static_cast<double>(std::max<int64_t>(weight, 1)));
  return divisors;
}

at::Tensor divided(const std::vector<at::Tensor>& loss_sums, const std::vector<double>& divisors) {
  at::Tensor loss;
  for (size_t index = 0; index < loss_sums.size(); ++index) {
    if (!loss_sums[index].defined()) continue;
    const at::Tensor part = loss_sums[index].div(divisors.at(index));
    loss = loss.defined() ? loss.add(part) : part;
  }
  APUS_ASSERT(loss.defined(), "an objective gave no loss");
  return loss;
}

std::vector<double> means_of(const std::vector<double>& sums, const std::vector<ObjectiveMetric>& metrics,
                             const std::vector<double>& divisors) {
  std::vector<double> means;
  for (size_t index = 0; index < metrics.size(); ++index)
    means.push_back(sums.at(index) / divisors.at(metrics[index].divisor));
  return means;
}

std::vector<int64_t> metric_weights(const std::vector<ObjectiveMetric>& metrics,
                                    const std::vector<int64_t>& weights) {
  std::vector<int64_t> chosen;
  for (const ObjectiveMetric& metric : metrics) chosen.push_back(weights.at(metric.divisor));
  return chosen;
}

void sum_over_ranks(comm::Communicator& group, std::vector<double>& values) {
  const at::Tensor sums = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), sums.mutable_data_ptr<double>());
  group.all_reduce(sums)->wait();
  std::copy_n(sums.const_data_ptr<double>(), values.size(), values.begin());
}

void StepSums::add(const std::vector<at::Tensor>& losses, const at::Tensor& metric_sums) {
  for (const at::Tensor& loss : losses)
    losses_.push_back(loss.defined() ? loss.detach().to(at::kDouble) : at::zeros({}, at::kDouble));
  if (!metric_sums.defined() || metrics_ == 0) return;
  APUS_ASSERT(metric_sums.numel() == static_cast<int64_t>(metrics_), "an objective gave ",
              metric_sums.numel(), " metrics of ", metrics_);
  sums_ = sums_.defined() ? sums_ + metric_sums : metric_sums;
}

at::Tensor StepSums::found_inf() const {
  APUS_ASSERT(!losses_.empty(), "no loss was added");
  return at::stack(losses_).isfinite().all().logical_not().to(at::kFloat).reshape({1});
}

/// Losses, metrics if there are any, extra.
at::Tensor StepSums::all(const at::Tensor& extra) const {
  const at::Device device = losses_.front().device();
  std::vector<at::Tensor> parts;
  for (const at::Tensor& loss : losses_) parts.push_back(loss.to(device).reshape({1}));
  if (sums_.defined()) parts.push_back(sums_.to(device));
  if (extra.defined()) parts.push_back(extra.to(device, at::kDouble).reshape({1}));
  return at::cat(parts);
}

StepValues StepSums::read() const {
  if (losses_.empty()) return {.losses = {}, .metric_sums = std::vector<double>(metrics_, 0.0)};
  const at::Tensor zero = at::zeros({1}, losses_.front().options());
  return ComingValues(all(zero).cpu(), losses_.size(), metrics_).read();
}

ComingValues StepSums::send(const at::Tensor& extra) const {
  APUS_ASSERT(!losses_.empty(), "no loss was added");
  return {all(extra), losses_.size(), metrics_};
}

ComingValues::ComingValues(const at::Tensor& values, size_t losses, size_t metrics)
    : host_(values), losses_(losses), metrics_(metrics) {
  if (values.is_cpu()) return;
  host_ = at::empty(values.sizes(), at::TensorOptions(values.scalar_type()).pinned_memory(true));
  host_.copy_(values, /*non_blocking=*/true);
  arrived_.emplace(values.device().type());
  arrived_->record(c10::impl::VirtualGuardImpl(values.device().type()).getStream(values.device()));
}

bool ComingValues::are_here() const {
  return !arrived_ || arrived_->query();
}

StepValues ComingValues::read() const {
  if (arrived_) arrived_->synchronize();
  const double* const numbers = host_.const_data_ptr<double>();
  const auto count = static_cast<size_t>(host_.numel());
  StepValues values{.losses = {numbers, numbers + losses_},
                    .metric_sums = std::vector<double>(metrics_, 0.0),
                    .extra = numbers[count - 1]};
  if (count > losses_ + 1) values.metric_sums.assign(numbers + losses_, numbers + count - 1);
  return values;
}

}  // namespace apus::train
