// AdamW on the CPU: 16 bytes are read and 12 written an element, so memory bandwidth limits it. Plain loops
// that the compiler vectorises; the vector width is picked at load time. Neither clone has fused multiply-add
// (avx2 does not switch fma on, and contraction is off), and every operation used (+ - * / sqrt) rounds
// correctly in scalar and vector form: so all widths, and the scalar remainder of a loop, give the same bits.
#include "optim/adamw_kernel.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cmath>

#include "apus/base/philox.h"
#include "optim/adamw_rows.h"

#if defined(__GNUC__) && !defined(__clang__)
// -O2 does not vectorise loops of unknown length.
#pragma GCC optimize("O3", "fp-contract=off")
#endif

// Sanitizers run before the resolvers of cloned functions can.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define APUS_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define APUS_VECTOR_CLONES
#endif

namespace apus::optim::detail {

namespace {

// Elements handled at a time, so that the square roots stay in the first-level cache.
constexpr int64_t kBlock = 512;

APUS_VECTOR_CLONES
void update_moments(float* __restrict exp_avg, float* __restrict exp_avg_sq, const float* __restrict grad,
                    int64_t count, const AdamwCoefficients& coefficients) {
  const AdamwCoefficients c = coefficients;
  for (int64_t i = 0; i < count; ++i) {
    const float g = grad[i] * c.clip;
    exp_avg[i] = exp_avg[i] + c.one_minus_beta1 * (g - exp_avg[i]);
    exp_avg_sq[i] = exp_avg_sq[i] * c.beta2 + c.one_minus_beta2 * g * g;
  }
}

// By hand, because GCC vectorises sqrtf only where -fno-math-errno is on the command line.
void square_roots(const float* from, float* to, int64_t count) {
  int64_t i = 0;
#if defined(__SSE__)
  for (; i + 4 <= count; i += 4) _mm_storeu_ps(to + i, _mm_sqrt_ps(_mm_loadu_ps(from + i)));
#endif
  for (; i < count; ++i) to[i] = std::sqrt(from[i]);
}

APUS_VECTOR_CLONES
void update_master(float* __restrict master, const float* __restrict exp_avg, const float* __restrict roots,
                   int64_t count, const AdamwCoefficients& coefficients) {
  const AdamwCoefficients c = coefficients;
  for (int64_t i = 0; i < count; ++i) {
    const float denominator = roots[i] / c.correction2_sqrt + c.epsilon;
    master[i] = master[i] * c.decay + c.minus_step_size * exp_avg[i] / denominator;
  }
}

}  // namespace

void adamw_update(const AdamwArrays& arrays, int64_t begin, int64_t end, const AdamwCoefficients& c) {
  float roots[kBlock];
  for (; begin < end; begin += kBlock) {
    const int64_t count = std::min(kBlock, end - begin);
    float* exp_avg = arrays.exp_avg + begin;
    float* exp_avg_sq = arrays.exp_avg_sq + begin;
    update_moments(exp_avg, exp_avg_sq, arrays.grad + begin, count, c);
    square_roots(exp_avg_sq, roots, count);
    update_master(arrays.master + begin, exp_avg, roots, count, c);
  }
}

APUS_VECTOR_CLONES
void round_to_bf16(const float* __restrict from, uint16_t* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    to[i] = static_cast<uint16_t>(is_nan ? 0x7FC0u : rounded);
  }
}

APUS_VECTOR_CLONES
void widen_bf16(const uint16_t* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = __builtin_bit_cast(float, static_cast<uint32_t>(from[i]) << 16);
}

namespace {

/// Sixteen random bits are added below the kept ones, and what carries over rounds up.
void round_stochastically(const float* from, uint16_t* to, int64_t count, RoundedArray array,
                          const AdamwRounding& rounding) {
  PhiloxBlock block{};
  for (int64_t i = 0; i < count; ++i) {
    const auto element = static_cast<uint64_t>(rounding.first_element + i);
    const uint64_t group = element / kRoundingGroup;
    const auto lane = static_cast<uint32_t>(element % kRoundingGroup);
    if (i == 0 || lane == 0) {
      block = philox4x32({{static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), rounding.step,
                           static_cast<uint32_t>(array)}},
                         rounding.key);
    }
    const uint32_t random = block.w[lane / 2] >> (lane % 2 * 16) & 0xFFFFu;
    const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]);
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    to[i] = static_cast<uint16_t>(is_nan ? 0x7FC0u : (bits + random) >> 16);
  }
}

}  // namespace

void adamw_update_bf16(const AdamwArrays16& arrays, int64_t begin, int64_t end, const AdamwCoefficients& c,
                       const AdamwRounding& rounding) {
  float master[kBlock], exp_avg[kBlock], exp_avg_sq[kBlock];
  AdamwRounding at = rounding;
  for (; begin < end; begin += kBlock, at.first_element += kBlock) {
    const int64_t count = std::min(kBlock, end - begin);
    widen_bf16(arrays.master + begin, master, count);
    widen_bf16(arrays.exp_avg + begin, exp_avg, count);
    widen_bf16(arrays.exp_avg_sq + begin, exp_avg_sq, count);
    adamw_update({master, exp_avg, exp_avg_sq, arrays.grad + begin}, 0, count, c);
    round_stochastically(master, arrays.master + begin, count, RoundedArray::kMaster, at);
    round_stochastically(exp_avg, arrays.exp_avg + begin, count, RoundedArray::kExpAvg, at);
    round_stochastically(exp_avg_sq, arrays.exp_avg_sq + begin, count, RoundedArray::kExpAvgSq, at);
  }
}

}  // namespace apus::optim::detail
