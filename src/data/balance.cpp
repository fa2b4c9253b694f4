#include "apus/data/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

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

/// What a rank takes of a round.
struct Seat {
  int64_t rank = 0;
  int64_t rows = 0;
};

/// The seats of a round, the rank with the least so far first, so that the last ones may stay empty.
std::vector<Seat> seats_for(int64_t rows, const std::vector<double>& sums, int64_t micro_batch_rows) {
  std::vector<Seat> seats;
  for (const int64_t rank : least_first(sums)) {
    seats.push_back({rank, std::min(rows, micro_batch_rows)});
    rows -= seats.back().rows;
  }
  return seats;
}

/// The rank of each row of a round: neighbours in cost together.
std::vector<int64_t> like_costs(const std::vector<Seat>& seats) {
  std::vector<int64_t> ranks;
  for (const Seat& seat : seats) ranks.insert(ranks.end(), static_cast<size_t>(seat.rows), seat.rank);
  return ranks;
}

/// The rank of each row of a round: the one with the least so far that has room.
std::vector<int64_t> even_costs(std::vector<Seat> seats, const std::vector<double>& sums,
                                std::span<const double> costs) {
  std::set<std::pair<double, size_t>> open;  // sum so far, seat
  for (size_t i = 0; i < seats.size(); ++i)
    if (seats[i].rows > 0) open.emplace(sums[static_cast<size_t>(seats[i].rank)], i);
  std::vector<int64_t> ranks;
  for (const double cost : costs) {
    const auto [sum, index] = *open.begin();
    open.erase(open.begin());
    ranks.push_back(seats[index].rank);
    if (--seats[index].rows > 0) open.emplace(sum + cost, index);
  }
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
  const size_t rows = order.size(), world = static_cast<size_t>(options.world);
  const size_t set = static_cast<size_t>(options.micro_batch_rows) * world;
  std::vector<Chunk> chunks((rows + set - 1) / set * world);
  std::vector<double> sums(world, 0.0);
  for (size_t first = 0, round = 0; first < rows; first += set, ++round) {
    std::vector<double> dealt;
    for (size_t i = first; i < std::min(rows, first + set); ++i)
      dealt.push_back(costs[static_cast<size_t>(order[i])]);
    const auto seats = seats_for(static_cast<int64_t>(dealt.size()), sums, options.micro_batch_rows);
    const auto ranks =
        options.goal == DealGoal::kLikeCosts ? like_costs(seats) : even_costs(seats, sums, dealt);
    for (size_t i = 0; i < dealt.size(); ++i) {
      const auto rank = static_cast<size_t>(ranks[i]);
      chunks[round * world + rank].push_back(order[first + i]);
      sums[rank] += dealt[i];
    }
  }
  for (Chunk& chunk : chunks) std::sort(chunk.begin(), chunk.end());
  return chunks;
}

}  // namespace apus::data
