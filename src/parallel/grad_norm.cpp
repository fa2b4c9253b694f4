#include "apus/parallel/grad_norm.h"

#include <algorithm>
#include <numeric>

#include "apus/base/error.h"
#include "apus/memory/flat_layout.h"

namespace apus::parallel {
namespace {

/// Eight partial sums let the compiler vectorise without changing the order that the source states.
double run_sum(const float* values, int64_t count) {
  double lanes[8] = {};
  int64_t index = 0;
  for (; index + 8 <= count; index += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) {
      const double value = values[index + lane];
      lanes[lane] += value * value;
    }
  }
  for (; index < count; ++index) lanes[index % 8] += static_cast<double>(values[index]) * values[index];
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// One block, cut where weights change.
double weighted_sum(const float* values, int64_t begin, int64_t end, std::span<const WeightedRun> runs) {
  double sum = 0.0;
  int64_t done = begin;
  for (const WeightedRun& run : runs) {
    const int64_t first = std::max(run.begin, done), last = std::min(run.end, end);
    if (first >= last) continue;
    sum += run_sum(values + done, first - done) + run.weight * run_sum(values + first, last - first);
    done = last;
  }
  return sum + run_sum(values + done, end - done);
}

}  // namespace

std::vector<double> block_sums_of_squares(const at::Tensor& grad_N, std::span<const WeightedRun> runs) {
  APUS_CHECK((grad_N.scalar_type() == at::kFloat || grad_N.scalar_type() == at::kBFloat16) &&
                 grad_N.is_contiguous() && grad_N.device().is_cpu(),
             ShapeError, "the norm takes a contiguous fp32 or bf16 CPU tensor, got ", grad_N.toString());
  const at::Tensor wide_N = grad_N.to(at::kFloat);
  const float* values = wide_N.const_data_ptr<float>();
  std::vector<double> sums;
  for (int64_t begin = 0; begin < wide_N.numel(); begin += memory::FlatLayout::kBlockElements) {
    const int64_t end = std::min(begin + memory::FlatLayout::kBlockElements, wide_N.numel());
    sums.push_back(weighted_sum(values, begin, end, runs));
  }
  return sums;
}

double sum_of_squares(const at::Tensor& grad_N, std::span<const WeightedRun> runs) {
  const std::vector<double> sums = block_sums_of_squares(grad_N, runs);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace apus::parallel
