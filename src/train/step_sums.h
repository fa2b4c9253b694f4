#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
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

/// What a step measures, on the host.
struct StepValues {
  std::vector<double> losses;       ///< in the order in which they were added; 0 where undefined
  std::vector<double> metric_sums;  ///< over the micro-batches
  double extra = 0.0;               ///< what was sent along
};

/// Values on their way to the host.
class ComingValues final {
 public:
  /// `values`: fp64 losses, metrics (none: all 0) and the extra number. From a GPU they go into pinned memory
  /// on the current stream.
  ComingValues(const at::Tensor& values, size_t losses, size_t metrics);

  /// Whether read() would not wait.
  bool are_here() const;
  /// Waits for them alone, not for what was queued behind.
  StepValues read() const;

 private:
  at::Tensor host_;
  size_t losses_;
  size_t metrics_;
  std::optional<c10::Event> arrived_;  // none: they are there
};

/// Losses and metrics of micro-batches, on their device until they are read.
class StepSums final {
 public:
  using Values = StepValues;

  /// `metrics`: how many there are.
  explicit StepSums(size_t metrics) : metrics_(metrics) {}

  /// Takes a micro-batch's losses (fp32 scalars, some may be undefined) and metrics.
  void add(const std::vector<at::Tensor>& losses, const at::Tensor& metric_sums);

  /// fp32 [1] on the losses' device: 1 unless all of them are finite. At least one was added.
  at::Tensor found_inf() const;

  /// Waits for the device, once.
  StepValues read() const;
  /// Does not wait. `extra` is a number on the device that goes along; at least one loss was added.
  ComingValues send(const at::Tensor& extra) const;

 private:
  at::Tensor all(const at::Tensor& extra) const;

  size_t metrics_;
  std::vector<at::Tensor> losses_;
  at::Tensor sums_;
};

}  // namespace apus::train
