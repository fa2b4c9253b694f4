#include "apus/data/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apus/base/error.h"
#include "apus/data/dataset.h"

namespace apus::data {
namespace {

using Chunk = std::vector<int64_t>;

/// Indexes of the costs, the largest first; equal ones in their own order.
std::vector<int64_t> costliest_first(std::span<const double> costs) {
  std::vector<int64_t> indexes(costs.size());
  std::iota(indexes.begin(), indexes.end(), int64_t{0});
  std::stable_sort(indexes.begin(), indexes.end(), [&](int64_t a, int64_t b) {
    return costs[static_cast<size_t>(a)] > costs[static_cast<size_t>(b)];
  });
  return indexes;
}

/// Ranks by what they have to do so far, the least first.
std::vector<int64_t> least_first(const std::vector<double>& sums) {
  std::vector<int64_t> ranks(sums.size());
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  std::stable_sort(ranks.begin(), ranks.end(), [&](int64_t a, int64_t b) {
    return sums[static_cast<size_t>(a)] < sums[static_cast<size_t>(b)];
  });
  return ranks;
}

void check(std::span<const double> costs, const DealOptions& options) {
  APUS_CHECK(options.micro_batch_rows > 0 && options.world > 0, ConfigError, "balance: micro-batch ",
             options.micro_batch_rows, " and world ", options.world, " must be 1 or more");
  for (size_t i = 0; i < costs.size(); ++i)
    APUS_CHECK(std::isfinite(costs[i]), ConfigError, "balance: row ", i, " of the step costs ", costs[i],
               ", expected a finite number");
}

}  // namespace

double row_cost(const Dataset& dataset, int64_t ordinal, const CostModel& model) {
  APUS_CHECK(std::isfinite(model.attention) && model.attention >= 0, ConfigError,
             "balance: attention weighs ", model.attention, ", expected 0 or more");
  const auto tokens = static_cast<double>(dataset.tokens(ordinal));
  if (model.attention == 0) return tokens;
  return tokens + model.attention * dataset.squared_tokens(ordinal);
}

std::vector<std::vector<int64_t>> balance_step(std::span<const double> costs, const DealOptions& options) {
  check(costs, options);
  const std::vector<int64_t> order = costliest_first(costs);
  const auto rows = static_cast<int64_t>(order.size());
  const int64_t set = options.micro_batch_rows * options.world;
  std::vector<Chunk> chunks(static_cast<size_t>((rows + set - 1) / set * options.world));
  std::vector<double> sums(static_cast<size_t>(options.world), 0.0);
  for (int64_t round = 0; round * set < rows; ++round) {
    const std::vector<int64_t> ranks = least_first(sums);
    for (int64_t turn = 0; turn < options.world; ++turn) {
      const int64_t first = std::min(rows, round * set + turn * options.micro_batch_rows);
      const int64_t end = std::min(rows, first + options.micro_batch_rows);
      const int64_t rank = ranks[static_cast<size_t>(turn)];
      Chunk& chunk = chunks[static_cast<size_t>(round * options.world + rank)];
      chunk.assign(order.begin() + first, order.begin() + end);
      for (const int64_t index : chunk) sums[static_cast<size_t>(rank)] += costs[static_cast<size_t>(index)];
      std::sort(chunk.begin(), chunk.end());
    }
  }
  return chunks;
}

}  // namespace apus::data
