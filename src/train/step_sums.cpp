#include "train/step_sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

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

StepSums::Values StepSums::read() const {
  Values values{.metric_sums = std::vector<double>(metrics_, 0.0)};
  if (losses_.empty()) return values;
  const at::Device device = losses_.front().device();
  std::vector<at::Tensor> all;
  for (const at::Tensor& loss : losses_) all.push_back(loss.to(device).reshape({1}));
  if (sums_.defined()) all.push_back(sums_.to(device));
  const at::Tensor host = at::cat(all).cpu();
  const double* numbers = host.const_data_ptr<double>();
  values.losses.assign(numbers, numbers + losses_.size());
  if (sums_.defined()) values.metric_sums.assign(numbers + losses_.size(), numbers + host.numel());
  return values;
}

}  // namespace apus::train
