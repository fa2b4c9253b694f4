#include "apus/parallel/grad_norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "apus/base/error.h"
#include "apus/memory/flat_layout.h"

namespace apus::parallel {
namespace {

constexpr int64_t kBlock = memory::FlatLayout::kBlockElements;

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

/// One block, cut where weights change; `values` are the block's.
double weighted_sum(const float* values, const memory::ElementRange& block,
                    std::span<const WeightedRun> runs) {
  double sum = 0.0;
  int64_t done = block.begin;
  const auto part = [&](int64_t first, int64_t last) {
    return run_sum(values + (first - block.begin), last - first);
  };
  for (const WeightedRun& run : runs) {
    const int64_t first = std::max(run.begin, done), last = std::min(run.end, block.end);
    if (first >= last) continue;
    sum += part(done, first) + run.weight * part(first, last);
    done = last;
  }
  return sum + part(done, block.end);
}

double block_sum(const at::Tensor& grad_N, const memory::ElementRange& block,
                 std::span<const WeightedRun> runs) {
  if (grad_N.scalar_type() == at::kFloat)
    return weighted_sum(grad_N.const_data_ptr<float>() + block.begin, block, runs);
  float wide[kBlock];
  const auto* narrow = grad_N.const_data_ptr<c10::BFloat16>() + block.begin;
  std::copy(narrow, narrow + block.size(), wide);
  return weighted_sum(wide, block, runs);
}

}  // namespace

std::vector<double> block_sums_of_squares(const at::Tensor& grad_N, std::span<const WeightedRun> runs) {
  APUS_CHECK((grad_N.scalar_type() == at::kFloat || grad_N.scalar_type() == at::kBFloat16) &&
                 grad_N.is_contiguous() && grad_N.device().is_cpu(),
             ShapeError, "the norm takes a contiguous fp32 or bf16 CPU tensor, got ", grad_N.toString());
  std::vector<double> sums(static_cast<size_t>((grad_N.numel() + kBlock - 1) / kBlock));
  constexpr int64_t kBlocksATask = 256;
  at::parallel_for(0, static_cast<int64_t>(sums.size()), kBlocksATask, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kBlock, end = std::min(begin + kBlock, grad_N.numel());
      sums[static_cast<size_t>(block)] = block_sum(grad_N, {begin, end}, runs);
    }
  });
  return sums;
}

double sum_of_squares(const at::Tensor& grad_N, std::span<const WeightedRun> runs) {
  const std::vector<double> sums = block_sums_of_squares(grad_N, runs);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace apus::parallel
