#pragma once

#include <cstdint>

#include "apus/base/philox.h"

namespace apus::ops::detail {

/// One row's dropout: its coordinate, the mask's key, what a kept feature is multiplied by.
struct DropoutRow {
  SampleCoordinate at;
  uint64_t key = 0;
  /// A feature is kept where its 16 random bits are at least this: ceil(p * 2^16).
  uint32_t threshold = 0;
  float scale = 1.0f;
};

/// Features that share a block of Philox, 16 bits each: its words in order, low halves first.
inline constexpr uint32_t kDropoutGroup = 8;

/// The counter of the block that holds the group of `feature` (index in the UNSHARDED dim).
APUS_HOST_DEVICE constexpr PhiloxBlock dropout_counter(const SampleCoordinate& at, uint32_t feature) {
  return sample_counter(at, feature / (kDropoutGroup / 4));
}

/// ceil(p * 2^16): a feature is kept where its 16 bits, as a fraction of 2^16, are at least p.
uint32_t dropout_threshold(double p);

/// factors[i] = the scale where feature `first + i` is kept, else 0.
void dropout_factors(const DropoutRow& row, int64_t first, int64_t count, float* factors);

}  // namespace apus::ops::detail
