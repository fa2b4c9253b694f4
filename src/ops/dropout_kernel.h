#pragma once

#include <cstdint>

#include "apus/base/philox.h"

namespace apus::ops::detail {

/// One row's dropout: its coordinate, the mask's key, what a kept feature is multiplied by.
struct DropoutRow {
  SampleCoordinate at;
  uint64_t key = 0;
  /// A feature is kept where its 24 random bits are at least this: ceil(p * 2^24).
  uint32_t threshold = 0;
  float scale = 1.0f;
};

/// ceil(p * 2^24): unit_float(word) >= p is word >> 8 >= it, exactly.
uint32_t dropout_threshold(double p);

/// factors[i] = the scale where feature `first + i` is kept, else 0.
void dropout_factors(const DropoutRow& row, int64_t first, int64_t count, float* factors);

}  // namespace apus::ops::detail
