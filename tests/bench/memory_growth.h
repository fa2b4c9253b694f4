#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace apus::bench {

/// What a rank held when it looked.
struct MemorySample {
  int64_t step = 0;
  int64_t allocated = 0;  ///< on the device, in tensors
  int64_t reserved = 0;
  int64_t host = 0;  ///< RssAnon
};

/// How much more was held at most in the last quarter of the samples than in the second one: the first
/// warms up. All zero with fewer than eight samples.
inline MemorySample growth_of(const std::vector<MemorySample>& samples) {
  const size_t quarter = samples.size() / 4;
  if (quarter < 2) return {};
  MemorySample early, late;
  const auto most = [](MemorySample& of, const MemorySample& one) {
    of.allocated = std::max(of.allocated, one.allocated);
    of.reserved = std::max(of.reserved, one.reserved);
    of.host = std::max(of.host, one.host);
  };
  for (size_t i = quarter; i < 2 * quarter; ++i) most(early, samples[i]);
  for (size_t i = samples.size() - quarter; i < samples.size(); ++i) most(late, samples[i]);
  return {.step = samples.back().step,
          .allocated = late.allocated - early.allocated,
          .reserved = late.reserved - early.reserved,
          .host = late.host - early.host};
}

}  // namespace apus::bench
