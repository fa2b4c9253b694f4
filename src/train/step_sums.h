#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "apus/comm/communicator.h"
#include "apus/train/objective.h"

namespace apus::train {

/// What sums are divided by; a divisor that nothing counts in divides zeros.
std::vector<double> divisors_of(const std::vector<int64_t>& weights);

/// A micro-batch's part of the step's loss, with tape.
at::Tensor divided(const std::vector<at::Tensor>& loss_sums, const std::vector<double>& divisors);

/// The means of metrics from their sums.
std::vector<double> means_of(const std::vector<double>& sums, const std::vector<ObjectiveMetric>& metrics,
                             const std::vector<double>& divisors);

/// What each metric is divided by.
std::vector<int64_t> metric_weights(const std::vector<ObjectiveMetric>& metrics,
                                    const std::vector<int64_t>& weights);

/// Adds an fp64 vector over the ranks.
void sum_over_ranks(comm::Communicator& group, std::vector<double>& values);

/// Losses and metrics of micro-batches, on their device until they are read.
class StepSums final {
 public:
  /// `metrics`: how many there are.
  explicit StepSums(size_t metrics) : metrics_(metrics) {}

  /// Takes a micro-batch's losses (fp32 scalars, some may be undefined) and metrics.
  void add(const std::vector<at::Tensor>& losses, const at::Tensor& metric_sums);

  /// Waits for the device, once.
  struct Values {
    std::vector<double> losses;       ///< in the order in which they were added; 0 where undefined
    std::vector<double> metric_sums;  ///< over the micro-batches
  };
  Values read() const;

 private:
  size_t metrics_;
  std::vector<at::Tensor> losses_;
  at::Tensor sums_;
};

}  // namespace apus::train
