#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

/// Pairwise covering arrays: few combinations of many factors in which each pair of levels occurs.
namespace apus::testing {

/// One level of each factor, by its ordinal.
using Combination = std::vector<int>;
/// Two factors and a level of each.
using LevelPair = std::tuple<size_t, int, size_t, int>;

inline std::set<LevelPair> pairs_of(const Combination& combination) {
  std::set<LevelPair> pairs;
  for (size_t first = 0; first < combination.size(); ++first) {
    for (size_t second = first + 1; second < combination.size(); ++second) {
      pairs.insert({first, combination[first], second, combination[second]});
    }
  }
  return pairs;
}

/// The product of factors with so many levels each, without what is not feasible; the last factor runs
/// fastest.
inline std::vector<Combination> feasible_product(const std::vector<int>& levels,
                                                 const std::function<bool(const Combination&)>& feasible) {
  std::vector<Combination> product;
  Combination next(levels.size(), 0);
  for (size_t factor = 0; factor < levels.size();) {
    if (feasible(next)) product.push_back(next);
    for (factor = 0; factor < levels.size(); ++factor) {
      const size_t place = levels.size() - 1 - factor;
      if (++next[place] < levels[place]) break;
      next[place] = 0;
    }
  }
  return product;
}

/// Combinations of `feasible` that hold every pair of levels that any of them holds. Greedy: next comes the
/// one with the most pairs that are still missing, the first of several, so that the list depends on the
/// input alone.
inline std::vector<Combination> pairwise_cover(const std::vector<Combination>& feasible) {
  std::set<LevelPair> missing;
  for (const Combination& combination : feasible) missing.merge(pairs_of(combination));
  std::vector<Combination> cover;
  while (!missing.empty()) {
    const Combination* best = nullptr;
    size_t most = 0;
    for (const Combination& combination : feasible) {
      size_t gain = 0;
      for (const LevelPair& pair : pairs_of(combination)) gain += missing.count(pair);
      if (gain > most) {
        most = gain;
        best = &combination;
      }
    }
    for (const LevelPair& pair : pairs_of(*best)) missing.erase(pair);
    cover.push_back(*best);
  }
  return cover;
}

}  // namespace apus::testing
