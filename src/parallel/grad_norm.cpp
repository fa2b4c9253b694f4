#include "apus/parallel/grad_norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "apus/base/error.h"
#include "apus/memory/flat_layout.h"
#include "apus/optim/update_threads.h"

namespace apus::parallel {
namespace {

constexpr int64_t kBlock = memory::FlatLayout::kBlockElements;
/// What a thread takes at a time.
constexpr int64_t kBlocksAPiece = 256;
/// Below so many pieces for each, starting a thread costs more than it saves.
constexpr int64_t kWorthStarting = 4;

// A square of fp32 is exact in double, so that a fused multiplication and addition has the same bits.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define APUS_WIDE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define APUS_WIDE_CLONES
#endif

/// Eight partial sums let the compiler vectorise without changing the order that the source states.
APUS_WIDE_CLONES double run_sum(const float* values, int64_t count) {
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

/// A whole block: a length that the compiler knows is vectorised.
APUS_WIDE_CLONES void widen_block(const c10::BFloat16* __restrict narrow, float* __restrict wide) {
  for (int64_t index = 0; index < kBlock; ++index)
    wide[index] = std::bit_cast<float>(uint32_t{narrow[index].x} << 16);
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
  if (block.size() == kBlock) {
    widen_block(narrow, wide);
  } else {
    std::copy(narrow, narrow + block.size(), wide);
  }
  return weighted_sum(wide, block, runs);
}

}  // namespace

std::vector<double> block_sums_of_squares(const at::Tensor& grad_N, std::span<const WeightedRun> runs,
                                          optim::UpdateThreads* team) {
  APUS_CHECK((grad_N.scalar_type() == at::kFloat || grad_N.scalar_type() == at::kBFloat16) &&
                 grad_N.is_contiguous() && grad_N.device().is_cpu(),
             ShapeError, "the norm takes a contiguous fp32 or bf16 CPU tensor, got ", grad_N.toString());
  const int64_t blocks = (grad_N.numel() + kBlock - 1) / kBlock;
  const int64_t pieces = (blocks + kBlocksAPiece - 1) / kBlocksAPiece;
  std::vector<double> sums(static_cast<size_t>(blocks));
  const auto sum_piece = [&](int64_t piece) {
    const int64_t last = std::min((piece + 1) * kBlocksAPiece, blocks);
    for (int64_t block = piece * kBlocksAPiece; block < last; ++block) {
      const int64_t begin = block * kBlock, end = std::min(begin + kBlock, grad_N.numel());
      sums[static_cast<size_t>(block)] = block_sum(grad_N, {begin, end}, runs);
    }
  };
  // Not at::parallel_for: outside of libtorch, which is built with OpenMP, it is a loop.
  const int64_t worth = std::clamp<int64_t>(pieces / kWorthStarting, 1, at::get_num_threads());
  std::optional<optim::UpdateThreads> started;
  if (!team && worth > 1) team = &started.emplace(worth);
  if (team) {
    team->run(pieces, sum_piece);
  } else {
    for (int64_t piece = 0; piece < pieces; ++piece) sum_piece(piece);
  }
  return sums;
}

double sum_of_squares(const at::Tensor& grad_N, std::span<const WeightedRun> runs) {
  const std::vector<double> sums = block_sums_of_squares(grad_N, runs);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace apus::parallel
