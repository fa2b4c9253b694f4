#pragma once

#include <cstdint>

namespace apus::optim::detail {

/// A segment as kernels read it.
struct AdamwRow {
  int64_t begin;
  int64_t end;
  double lr_scale;
  double weight_decay;
  uint64_t rounding_key;
  int64_t first_element;
};

/// Which of the three arrays a random number rounds: a word of its Philox counter.
enum class RoundedArray : uint32_t { kMaster = 0, kExpAvg = 1, kExpAvgSq = 2 };

/// Elements that share one Philox block: eight numbers of 16 bits.
constexpr int64_t kRoundingGroup = 8;

/// Rounds of that Philox: passes over states in bf16 are held by it, and rounding asks for no more than the
/// fewest that pass the generator's tests.
constexpr int kRoundingRounds = 7;

}  // namespace apus::optim::detail
