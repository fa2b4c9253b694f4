// The vector form of the AdamW pass, once for all instruction sets: `Lanes` is one set's registers and
// operations. Included by adamw_avx2.cpp and adamw_avx512.cpp behind the pragmas that switch their
// instructions on, with Lanes types of internal linkage: no code compiled for a wide set can be linked into
// another file's place.
//
// An element is read once, updated in registers and written once: 16 bytes in and 12 out, with the bf16 copy
// 14, in kLine elements a turn, so that a turn writes a whole cache line of the copy. What a call has before
// the first such line and behind the last goes to the portable pass.
//
// States in bf16 are less traffic (10 bytes in with a fp32 gradient, 6 out) and need 48 random bits an
// element: Philox blocks of as many groups of eight elements as 64-bit lanes fit a register, whose words come
// out in the order in which the elements lie. The products need their factors in the low halves of 64-bit
// lanes, and leave rubbish in the high halves, which no later product reads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "optim/adamw_kernel.h"
#include "optim/adamw_rows.h"

namespace apus::optim::detail {

#define APUS_LANES_INLINE inline __attribute__((always_inline))

// Elements that a turn of the fp32 pass updates: 64 bytes of the copy.
constexpr int64_t kLine = 32;
// Bytes that are fetched ahead in each array; the processor's own prefetching stops at borders of pages.
constexpr int64_t kAhead = 1024;

template <typename Lanes>
struct Coefficients {
  typename Lanes::Floats clip, decay, one_minus_beta1, beta2, one_minus_beta2, minus_step_size,
      correction2_sqrt, epsilon;

  explicit APUS_LANES_INLINE Coefficients(const AdamwCoefficients& c)
      : clip(Lanes::all(c.clip)),
        decay(Lanes::all(c.decay)),
        one_minus_beta1(Lanes::all(c.one_minus_beta1)),
        beta2(Lanes::all(c.beta2)),
        one_minus_beta2(Lanes::all(c.one_minus_beta2)),
        minus_step_size(Lanes::all(c.minus_step_size)),
        correction2_sqrt(Lanes::all(c.correction2_sqrt)),
        epsilon(Lanes::all(c.epsilon)) {}
};

template <typename Lanes>
struct Element {
  typename Lanes::Floats master, exp_avg, exp_avg_sq;
};

/// The update in the order of the portable pass. A correction of 1 is not divided by: x / 1 is x.
template <typename Lanes, bool kCorrects>
APUS_LANES_INLINE void update(Element<Lanes>& at, typename Lanes::Floats grad, const Coefficients<Lanes>& c) {
  const auto g = Lanes::mul(grad, c.clip);
  at.exp_avg = Lanes::add(at.exp_avg, Lanes::mul(c.one_minus_beta1, Lanes::sub(g, at.exp_avg)));
  at.exp_avg_sq =
      Lanes::add(Lanes::mul(at.exp_avg_sq, c.beta2), Lanes::mul(Lanes::mul(c.one_minus_beta2, g), g));
  auto root = Lanes::root(at.exp_avg_sq);
  if constexpr (kCorrects) root = Lanes::div(root, c.correction2_sqrt);
  at.master = Lanes::add(Lanes::mul(at.master, c.decay),
                         Lanes::div(Lanes::mul(c.minus_step_size, at.exp_avg), Lanes::add(root, c.epsilon)));
}

template <typename Lanes, bool kGradIsBf16>
APUS_LANES_INLINE typename Lanes::Floats load_grad(const void* grad, int64_t at) {
  if constexpr (kGradIsBf16) return Lanes::widen(Lanes::load(static_cast<const uint16_t*>(grad) + at));
  return Lanes::load(static_cast<const float*>(grad) + at);
}

/// Fetches what a turn of `count` elements reads of an array that lies `kAhead` bytes ahead.
template <typename T>
APUS_LANES_INLINE void fetch_ahead(const T* from, int64_t count) {
  const char* first = reinterpret_cast<const char*>(from) + kAhead;
  for (int64_t byte = 0; byte < count * static_cast<int64_t>(sizeof(T)); byte += 64)
    __builtin_prefetch(first + byte);
}

template <bool kGradIsBf16>
APUS_LANES_INLINE void fetch_grad_ahead(const void* grad, int64_t at, int64_t count) {
  if constexpr (kGradIsBf16)
    fetch_ahead(static_cast<const uint16_t*>(grad) + at, count);
  else
    fetch_ahead(static_cast<const float*>(grad) + at, count);
}

/// The arrays from element `at` on.
template <bool kGradIsBf16, CopyKind kCopy>
AdamwArrays advanced(const AdamwArrays& from, int64_t at) {
  AdamwArrays to{from.master + at, from.exp_avg + at, from.exp_avg_sq + at, nullptr, nullptr};
  to.grad = static_cast<const char*>(from.grad) + at * (kGradIsBf16 ? 2 : 4);
  if constexpr (kCopy != CopyKind::kNone)
    to.copy = static_cast<char*>(from.copy) + at * (kCopy == CopyKind::kFp32 ? 4 : 2);
  return to;
}

/// kLine elements from `at` on.
template <typename Lanes, bool kGradIsBf16, CopyKind kCopy>
APUS_LANES_INLINE void update_line(const AdamwArrays& a, int64_t at, const Coefficients<Lanes>& c) {
  constexpr int64_t kParts = kLine / Lanes::kWidth;
  typename Lanes::Halves rounded[kParts];
#pragma GCC unroll 4
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t from = at + part * Lanes::kWidth;
    Element<Lanes> element{Lanes::load(a.master + from), Lanes::load(a.exp_avg + from),
                           Lanes::load(a.exp_avg_sq + from)};
    update<Lanes, true>(element, load_grad<Lanes, kGradIsBf16>(a.grad, from), c);
    Lanes::store(a.master + from, element.master);
    Lanes::store(a.exp_avg + from, element.exp_avg);
    Lanes::store(a.exp_avg_sq + from, element.exp_avg_sq);
    if constexpr (kCopy == CopyKind::kFp32) Lanes::store(static_cast<float*>(a.copy) + from, element.master);
    if constexpr (kCopy == CopyKind::kBf16)
      Lanes::store(static_cast<uint16_t*>(a.copy) + from, Lanes::round_to_nearest(element.master));
    if constexpr (kCopy == CopyKind::kBf16Streamed) rounded[part] = Lanes::round_to_nearest(element.master);
  }
  if constexpr (kCopy == CopyKind::kBf16Streamed)
    Lanes::stream_line(static_cast<uint16_t*>(a.copy) + at, rounded);
}

template <typename Lanes, bool kGradIsBf16, CopyKind kCopy>
void update_fp32(const AdamwArrays& a, int64_t count, const AdamwCoefficients& c) {
  const UpdateFp32 portable = portable_adamw().fp32[kGradIsBf16][static_cast<int>(kCopy)];
  int64_t at = 0;
  if constexpr (kCopy == CopyKind::kBf16Streamed) {  // lines are streamed whole
    const auto past_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.copy) % 64 / 2);
    at = std::min(past_line == 0 ? 0 : kLine - past_line, count);
    portable(a, at, c);
  }
  const Coefficients<Lanes> wide(c);
  for (; at + kLine <= count; at += kLine) {
    fetch_ahead(a.master + at, kLine);
    fetch_ahead(a.exp_avg + at, kLine);
    fetch_ahead(a.exp_avg_sq + at, kLine);
    fetch_grad_ahead<kGradIsBf16>(a.grad, at, kLine);
    update_line<Lanes, kGradIsBf16, kCopy>(a, at, wide);
  }
  if constexpr (kCopy == CopyKind::kBf16Streamed) Lanes::end_streams();
  portable(advanced<kGradIsBf16, kCopy>(a, at), count - at, c);
}

/// Philox's keys of the ten rounds, the same in all lanes.
template <typename Lanes>
struct RoundKeys {
  typename Lanes::Words first[10], second[10];

  explicit APUS_LANES_INLINE RoundKeys(uint64_t key) {
    auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      first[round] = Lanes::all_words(k0);
      second[round] = Lanes::all_words(k1);
    }
  }
};

/// Random bits of Lanes::kGroups groups of eight elements, as the elements lie: two registers of 16 bits
/// each.
template <typename Lanes>
struct RandomBits {
  typename Lanes::Words low, high;
};

template <typename Lanes>
APUS_LANES_INLINE RandomBits<Lanes> random_bits(typename Lanes::Words groups, uint32_t step,
                                                RoundedArray array, const RoundKeys<Lanes>& keys) {
  using Words = typename Lanes::Words;
  const Words factor0 = Lanes::all_words(0xD2511F53u), factor2 = Lanes::all_words(0xCD9E8D57u);
  Words w0 = groups, w1 = Lanes::high_half(groups), w2 = Lanes::all_words(step),
        w3 = Lanes::all_words(static_cast<uint32_t>(array));
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const Words a = Lanes::product(factor0, w0), b = Lanes::product(factor2, w2);
    w0 = Lanes::xor_of(Lanes::high_half(b), w1, keys.first[round]);
    w2 = Lanes::xor_of(Lanes::high_half(a), w3, keys.second[round]);
    w1 = b;
    w3 = a;
  }
  const Words first = Lanes::joined(w0, w1), second = Lanes::joined(w2, w3);
  return {Lanes::even_pairs(first, second), Lanes::odd_pairs(first, second)};
}

/// Lanes::kGroups groups from element `at` on, which begins one.
template <typename Lanes, bool kGradIsBf16>
APUS_LANES_INLINE void update_groups(const AdamwArrays16& a, int64_t at, typename Lanes::Words groups,
                                     const Coefficients<Lanes>& c, uint32_t step,
                                     const RoundKeys<Lanes>& keys) {
  const RandomBits<Lanes> for_master = random_bits<Lanes>(groups, step, RoundedArray::kMaster, keys);
  const RandomBits<Lanes> for_avg = random_bits<Lanes>(groups, step, RoundedArray::kExpAvg, keys);
  const RandomBits<Lanes> for_sq = random_bits<Lanes>(groups, step, RoundedArray::kExpAvgSq, keys);
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    const int64_t from = at + part * Lanes::kWidth;
    const auto bits = [part](const RandomBits<Lanes>& of) __attribute__((always_inline)) {
      return part % 2 == 0 ? Lanes::first_halves(part < 2 ? of.low : of.high)
                           : Lanes::second_halves(part < 2 ? of.low : of.high);
    };
    Element<Lanes> element{Lanes::widen(Lanes::load(a.master + from)),
                           Lanes::widen(Lanes::load(a.exp_avg + from)),
                           Lanes::widen(Lanes::load(a.exp_avg_sq + from))};
    update<Lanes, false>(element, load_grad<Lanes, kGradIsBf16>(a.grad, from), c);
    Lanes::store(a.master + from, Lanes::round_with(element.master, bits(for_master)));
    Lanes::store(a.exp_avg + from, Lanes::round_with(element.exp_avg, bits(for_avg)));
    Lanes::store(a.exp_avg_sq + from, Lanes::round_with(element.exp_avg_sq, bits(for_sq)));
  }
}

template <typename Lanes, bool kGradIsBf16>
void update_bf16(const AdamwArrays16& a, int64_t count, const AdamwCoefficients& c,
                 const AdamwRounding& rounding) {
  constexpr int64_t kTurn = Lanes::kGroups * kRoundingGroup;
  const auto portable = [&](int64_t begin, int64_t end) {
    portable_adamw().bf16[kGradIsBf16]({a.master + begin, a.exp_avg + begin, a.exp_avg_sq + begin,
                                        static_cast<const char*>(a.grad) + begin * (kGradIsBf16 ? 2 : 4)},
                                       end - begin, c,
                                       {rounding.key, rounding.step, rounding.first_element + begin});
  };
  const int64_t past_group = rounding.first_element % kRoundingGroup;
  int64_t at = std::min(past_group == 0 ? 0 : kRoundingGroup - past_group, count);
  portable(0, at);
  const Coefficients<Lanes> wide(c);
  const RoundKeys<Lanes> keys(rounding.key);
  for (; at + kTurn <= count; at += kTurn) {
    fetch_ahead(a.master + at, kTurn);
    fetch_ahead(a.exp_avg + at, kTurn);
    fetch_ahead(a.exp_avg_sq + at, kTurn);
    fetch_grad_ahead<kGradIsBf16>(a.grad, at, kTurn);
    const auto group = static_cast<uint64_t>(rounding.first_element + at) / kRoundingGroup;
    update_groups<Lanes, kGradIsBf16>(a, at, Lanes::groups_from(group), wide, rounding.step, keys);
  }
  portable(at, count);
}

/// The table of one instruction set.
template <typename Lanes>
constexpr AdamwKernels kernels_of(const char* name) {
  using enum CopyKind;
  return {.name = name,
          .fp32 = {{update_fp32<Lanes, false, kNone>, update_fp32<Lanes, false, kFp32>,
                    update_fp32<Lanes, false, kBf16>, update_fp32<Lanes, false, kBf16Streamed>},
                   {update_fp32<Lanes, true, kNone>, update_fp32<Lanes, true, kFp32>,
                    update_fp32<Lanes, true, kBf16>, update_fp32<Lanes, true, kBf16Streamed>}},
          .bf16 = {update_bf16<Lanes, false>, update_bf16<Lanes, true>}};
}

#undef APUS_LANES_INLINE

}  // namespace apus::optim::detail
