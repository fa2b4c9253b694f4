// AdamW on the CPU in plain loops, a block of elements at a time: what all other forms of the pass must equal
// bit for bit. No form fuses a multiplication with an addition (contraction is off, here and in the vector
// files), and every operation used (+ - * / sqrt) rounds correctly in scalar and vector form: so all widths
// give the same bits.
#include "optim/adamw_kernel.h"

#include <algorithm>
#include <cmath>

#include "apus/base/philox.h"
#include "optim/adamw_rows.h"

#if defined(__GNUC__) && !defined(__clang__)
// -O2 does not vectorise loops of unknown length.
#pragma GCC optimize("O3", "fp-contract=off")
#elif defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

namespace apus::optim::detail {
namespace {

// Elements handled at a time, so that what lies between two loops stays in the first-level cache.
constexpr int64_t kBlock = 512;

/// Three states in fp32, of one block.
struct Block {
  float* __restrict master;
  float* __restrict exp_avg;
  float* __restrict exp_avg_sq;
};

void update_block(const Block& at, const float* __restrict grad, int64_t count, const AdamwCoefficients& c) {
  float roots[kBlock];
  for (int64_t i = 0; i < count; ++i) {
    const float g = grad[i] * c.clip;
    at.exp_avg[i] = at.exp_avg[i] + c.one_minus_beta1 * (g - at.exp_avg[i]);
    at.exp_avg_sq[i] = at.exp_avg_sq[i] * c.beta2 + c.one_minus_beta2 * g * g;
  }
  for (int64_t i = 0; i < count; ++i) roots[i] = std::sqrt(at.exp_avg_sq[i]);
  for (int64_t i = 0; i < count; ++i) {
    const float denominator = roots[i] / c.correction2_sqrt + c.epsilon;
    at.master[i] = at.master[i] * c.decay + c.minus_step_size * at.exp_avg[i] / denominator;
  }
}

void widen_bf16(const uint16_t* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = __builtin_bit_cast(float, static_cast<uint32_t>(from[i]) << 16);
}

/// The gradient's elements from `begin` on in fp32; `room` holds a block.
template <bool kGradIsBf16>
const float* wide_grad(const void* grad, int64_t begin, int64_t count, float* room) {
  if constexpr (!kGradIsBf16) return static_cast<const float*>(grad) + begin;
  widen_bf16(static_cast<const uint16_t*>(grad) + begin, room, count);
  return room;
}

template <bool kGradIsBf16, CopyKind kCopy>
void update_fp32(const AdamwArrays& arrays, int64_t count, const AdamwCoefficients& c) {
  float room[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    float* master = arrays.master + begin;
    update_block({master, arrays.exp_avg + begin, arrays.exp_avg_sq + begin},
                 wide_grad<kGradIsBf16>(arrays.grad, begin, block, room), block, c);
    if constexpr (kCopy == CopyKind::kFp32)
      std::copy_n(master, block, static_cast<float*>(arrays.copy) + begin);
    if constexpr (kCopy == CopyKind::kBf16)
      round_to_bf16(master, static_cast<uint16_t*>(arrays.copy) + begin, block);
  }
}

/// Sixteen random bits are added below the kept ones, and what carries over rounds up.
void round_stochastically(const float* from, uint16_t* to, int64_t count, RoundedArray array,
                          const AdamwRounding& rounding) {
  PhiloxBlock block{};
  for (int64_t i = 0; i < count; ++i) {
    const auto element = static_cast<uint64_t>(rounding.first_element + i);
    const uint64_t group = element / kRoundingGroup;
    const auto lane = static_cast<uint32_t>(element % kRoundingGroup);
    if (i == 0 || lane == 0) {
      block = philox4x32<kRoundingRounds>({{static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32),
                                            rounding.step, static_cast<uint32_t>(array)}},
                                          rounding.key);
    }
    const uint32_t random = block.w[lane / 2] >> (lane % 2 * 16) & 0xFFFFu;
    const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]);
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    to[i] = static_cast<uint16_t>(is_nan ? 0x7FC0u : (bits + random) >> 16);
  }
}

template <bool kGradIsBf16>
void update_bf16(const AdamwArrays16& arrays, int64_t count, const AdamwCoefficients& c,
                 const AdamwRounding& rounding) {
  float master[kBlock], exp_avg[kBlock], exp_avg_sq[kBlock], room[kBlock];
  AdamwRounding at = rounding;
  for (int64_t begin = 0; begin < count; begin += kBlock, at.first_element += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    widen_bf16(arrays.master + begin, master, block);
    widen_bf16(arrays.exp_avg + begin, exp_avg, block);
    widen_bf16(arrays.exp_avg_sq + begin, exp_avg_sq, block);
    update_block({master, exp_avg, exp_avg_sq}, wide_grad<kGradIsBf16>(arrays.grad, begin, block, room),
                 block, c);
    round_stochastically(master, arrays.master + begin, block, RoundedArray::kMaster, at);
    round_stochastically(exp_avg, arrays.exp_avg + begin, block, RoundedArray::kExpAvg, at);
    round_stochastically(exp_avg_sq, arrays.exp_avg_sq + begin, block, RoundedArray::kExpAvgSq, at);
  }
}

}  // namespace

void round_to_bf16(const float* __restrict from, uint16_t* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    to[i] = static_cast<uint16_t>(is_nan ? 0x7FC0u : rounded);
  }
}

const AdamwKernels& portable_adamw() {
  using enum CopyKind;
  static const AdamwKernels kernels{.name = "portable",
                                    .fp32 = {{update_fp32<false, kNone>, update_fp32<false, kFp32>,
                                              update_fp32<false, kBf16>, update_fp32<false, kBf16>},
                                             {update_fp32<true, kNone>, update_fp32<true, kFp32>,
                                              update_fp32<true, kBf16>, update_fp32<true, kBf16>}},
                                    .bf16 = {update_bf16<false>, update_bf16<true>}};
  return kernels;
}

const AdamwKernels& best_adamw() {
  if (const AdamwKernels* widest = avx512_adamw()) return *widest;
  if (const AdamwKernels* wide = avx2_adamw()) return *wide;
  return portable_adamw();
}

}  // namespace apus::optim::detail
