#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "apus/base/api.h"

#if defined(__CUDACC__)
#define APUS_HOST_DEVICE __host__ __device__
#else
#define APUS_HOST_DEVICE
#endif

namespace apus {

/// Four 32-bit words: a counter on the way in, random bits on the way out.
struct PhiloxBlock {
  /// Word 0 is the least significant.
  uint32_t w[4];
};

/// One block of the Philox4x32 generator: a pure function of counter and key, equal on CPU and GPU.
/// Maths:       rounds of two 32 x 32 -> 64 bit products, their halves crossed and mixed with the key, which
///              grows by a constant a round. Seven are the fewest that pass the authors' tests, ten the usual
///              number.
/// Determinism: bitwise, everywhere.
/// Source:      Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
template <int kRounds = 10>
APUS_HOST_DEVICE constexpr PhiloxBlock philox4x32(PhiloxBlock counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.w[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter.w[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.w[1] ^ k0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.w[3] ^ k1, static_cast<uint32_t>(a)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// The key of a parameter or operation: a stable hash of the run's seed and the full path.
/// Equal on every rank, machine and version; two paths share a key with probability 2^-64.
APUS_API uint64_t philox_key(uint64_t seed, std::string_view path);

/// Where a number is drawn during training; the same whatever the split over ranks and micro-batches.
/// Packed kernels get `ordinal` and `position` as arrays, one entry a token.
struct SampleCoordinate {
  /// Epoch, below 2^31.
  uint32_t epoch = 0;
  /// Ordinal of the sample in the epoch's order.
  uint32_t ordinal = 0;
  /// 0: the only or chosen answer, 1: the rejected one.
  uint32_t side = 0;
  /// Position in the sequence.
  uint32_t position = 0;
};

/// The counter of the block that holds `feature` (index in the UNSHARDED dim); its word is `feature % 4`.
APUS_HOST_DEVICE constexpr PhiloxBlock sample_counter(const SampleCoordinate& at, uint32_t feature) {
  return {{feature / 4, at.position, at.ordinal, (at.epoch << 1) | (at.side & 1)}};
}

/// 24 random bits as a float in [0, 1): a multiple of 2^-24, so that rounding never gives 1.
APUS_HOST_DEVICE constexpr float unit_float(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// 53 random bits as a double in [0, 1): a multiple of 2^-53.
APUS_HOST_DEVICE constexpr double unit_double(uint32_t high, uint32_t low) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

/// The random float in [0, 1) for one feature of one token.
/// Code that handles four features at once draws one block and uses its words in order.
APUS_HOST_DEVICE constexpr float sample_uniform(uint64_t key, const SampleCoordinate& at, uint32_t feature) {
  return unit_float(philox4x32(sample_counter(at, feature), key).w[feature % 4]);
}

/// Random numbers addressed by index, e.g. the global element of a parameter: any range can be drawn
/// anywhere, in any order, and has no state to save. All kinds of number draw from the same bits, so use
/// one key for one kind.
/// Determinism: bitwise for word, uniform and below; normal as far as log, sqrt, cos and sin agree.
class PhiloxSequence final {
 public:
  /// The sequence of a key that was made elsewhere.
  constexpr explicit PhiloxSequence(uint64_t key) : key_(key) {}
  /// The sequence of a parameter or operation.
  PhiloxSequence(uint64_t seed, std::string_view path) : key_(philox_key(seed, path)) {}

  /// Word `index`.
  constexpr uint32_t word(uint64_t index) const { return block(index / 4).w[index % 4]; }

  /// Number `index`, uniform in [0, 1), 53 bits.
  constexpr double uniform(uint64_t index) const {
    const PhiloxBlock bits = block(index / 2);
    return index % 2 == 0 ? unit_double(bits.w[0], bits.w[1]) : unit_double(bits.w[2], bits.w[3]);
  }

  /// Number `index`, standard normal by Box-Muller; elements 2i and 2i+1 are the pair of block i.
  /// The logarithm's argument is 1 - u in (0, 1], so the largest magnitude is sqrt(106 ln 2), about 8.57.
  double normal(uint64_t index) const {
    const PhiloxBlock bits = block(index / 2);
    const double radius = std::sqrt(-2.0 * std::log(1.0 - unit_double(bits.w[0], bits.w[1])));
    const double angle = 2.0 * std::numbers::pi * unit_double(bits.w[2], bits.w[3]);
    return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }

  /// Integer `index`, uniform in [0, bound), without bias beyond 2^-64 x bound. `bound` must be positive.
  constexpr uint64_t below(uint64_t index, uint64_t bound) const {
    const PhiloxBlock bits = block(index);
    const auto wide = static_cast<unsigned __int128>(uint64_t{bits.w[0]} << 32 | bits.w[1]) * bound;
    return static_cast<uint64_t>(wide >> 64);
  }

 private:
  constexpr PhiloxBlock block(uint64_t index) const {
    return philox4x32({{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}}, key_);
  }

  uint64_t key_;
};

}  // namespace apus
