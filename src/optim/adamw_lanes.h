// The vector form of the AdamW pass, once for all instruction sets: `Lanes` is one set's registers and
// operations. Included by adamw_avx2.cpp and adamw_avx512.cpp behind the pragmas that switch their
// instructions on, with Lanes types of internal linkage: no code compiled for a wide set can be linked into
// another file's place.
//
// An element is read once, updated in registers and written once: 16 bytes in and 12 out, with the bf16 copy
// 14, in kLine elements a turn, so that a turn writes a whole cache line of the copy. What a call has before
// the first such line and behind the last goes to the portable pass. Where the arrays lie in caches the
// divider is what limits: root and division by the root stay with it, the division by a correction that all
// elements share is multiplications (class Divisor).
//
// States in bf16 are less traffic (10 bytes in with a fp32 gradient, 6 out) and need 48 random bits an
// element: Philox blocks of as many groups of eight elements as 64-bit lanes fit a register, whose words come
// out in the order in which the elements lie. The products need their factors in the low halves of 64-bit
// lanes, and leave rubbish in the high halves, which no later product reads. Elements of even and of odd
// place are updated in two registers: a 32-bit lane holds one of each, so neither widening nor narrowing
// moves anything between lanes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "optim/adamw_kernel.h"
#include "optim/adamw_rows.h"

namespace apus::optim::detail {

#define APUS_LANES_INLINE inline __attribute__((always_inline))

// Elements that a turn of the fp32 pass updates: 64 bytes of the copy.
constexpr int64_t kLine = 32;

/// Divides by one number in four operations, rounded as a division is.
/// The reciprocal is held in two parts, high = 1 / b rounded and low = the rest: q = a high + a low is less
/// than an ulp from a / b, and then q + (a - b q) high rounds right (Markstein 1990), as long as nothing
/// overflows or falls below the normal numbers: roots of floats do neither, and a correction lies in [1e-8,
/// 1]. What is not finite is its own quotient.
template <typename Lanes>
class Divisor {
 public:
  using Floats = typename Lanes::Floats;
  explicit APUS_LANES_INLINE Divisor(float b) : b_(Lanes::all(b)), high_(Lanes::div(Lanes::all(1.0f), b_)) {
    low_ = Lanes::mul(Lanes::fused_subtract_from(Lanes::all(1.0f), b_, high_), high_);
  }

  APUS_LANES_INLINE Floats quotient(Floats a) const {
    const Floats near = Lanes::fused_add(a, high_, Lanes::mul(a, low_));
    const Floats rest = Lanes::fused_subtract_from(a, b_, near);
    return Lanes::where_finite(a, Lanes::fused_add(rest, high_, near));
  }

 private:
  Floats b_, high_, low_;
};

template <typename Lanes>
struct Coefficients {
  typename Lanes::Floats clip, decay, one_minus_beta1, beta2, one_minus_beta2, minus_step_size, epsilon;
  Divisor<Lanes> correction2_sqrt;

  explicit APUS_LANES_INLINE Coefficients(const AdamwCoefficients& c)
      : clip(Lanes::all(c.clip)),
        decay(Lanes::all(c.decay)),
        one_minus_beta1(Lanes::all(c.one_minus_beta1)),
        beta2(Lanes::all(c.beta2)),
        one_minus_beta2(Lanes::all(c.one_minus_beta2)),
        minus_step_size(Lanes::all(c.minus_step_size)),
        epsilon(Lanes::all(c.epsilon)),
        correction2_sqrt(c.correction2_sqrt) {}
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
  if constexpr (kCorrects) root = c.correction2_sqrt.quotient(root);
  at.master = Lanes::add(Lanes::mul(at.master, c.decay),
                         Lanes::div(Lanes::mul(c.minus_step_size, at.exp_avg), Lanes::add(root, c.epsilon)));
}

template <typename Lanes, bool kGradIsBf16>
APUS_LANES_INLINE typename Lanes::Floats load_grad(const void* grad, int64_t at) {
  if constexpr (kGradIsBf16) return Lanes::load_wide(static_cast<const uint16_t*>(grad) + at);
  return Lanes::load(static_cast<const float*>(grad) + at);
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

/// Rounds kLine masters from `at` on into the bf16 copy.
template <typename Lanes, CopyKind kCopy>
APUS_LANES_INLINE void copy_line(const AdamwArrays& a, int64_t at, const typename Lanes::Floats* masters) {
  constexpr int64_t kParts = kLine / Lanes::kWidth;
#pragma GCC unroll 2
  for (int64_t part = 0; part < kParts; part += 2) {
    const int64_t from = at + part * Lanes::kWidth;
    uint16_t* to = static_cast<uint16_t*>(a.copy) + from;
    if (__builtin_expect(Lanes::any_nan(masters[part], masters[part + 1]), 0)) {
      round_to_bf16(a.master + from, to, 2 * Lanes::kWidth);
      continue;
    }
    const auto rounded = Lanes::round_to_nearest(masters[part], masters[part + 1]);
    kCopy == CopyKind::kBf16 ? Lanes::store(to, rounded) : Lanes::stream(to, rounded);
  }
}

/// kLine elements from `at` on.
template <typename Lanes, bool kGradIsBf16, CopyKind kCopy>
APUS_LANES_INLINE void update_line(const AdamwArrays& a, int64_t at, const Coefficients<Lanes>& c) {
  constexpr int64_t kParts = kLine / Lanes::kWidth;
  typename Lanes::Floats masters[kParts];
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
    masters[part] = element.master;
  }
  if constexpr (kCopy == CopyKind::kBf16 || kCopy == CopyKind::kBf16Streamed)
    copy_line<Lanes, kCopy>(a, at, masters);
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
    update_line<Lanes, kGradIsBf16, kCopy>(a, at, wide);
  }
  if constexpr (kCopy == CopyKind::kBf16Streamed) Lanes::end_streams();
  portable(advanced<kGradIsBf16, kCopy>(a, at), count - at, c);
}

/// Philox's keys of all rounds, the same in all lanes.
template <typename Lanes>
struct RoundKeys {
  typename Lanes::Words first[kRoundingRounds], second[kRoundingRounds];

  explicit APUS_LANES_INLINE RoundKeys(uint64_t key) {
    auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < kRoundingRounds; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
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

/// Those of the three arrays, in the order of RoundedArray, round by round: the chains hide each other's
/// latency.
template <typename Lanes>
APUS_LANES_INLINE void random_bits(typename Lanes::Words groups, uint32_t step, const RoundKeys<Lanes>& keys,
                                   RandomBits<Lanes> (&bits)[3]) {
  using Words = typename Lanes::Words;
  const Words factor0 = Lanes::all_words(0xD2511F53u), factor2 = Lanes::all_words(0xCD9E8D57u);
  Words w0[3], w1[3], w2[3], w3[3];
#pragma GCC unroll 3
  for (uint32_t array = 0; array < 3; ++array) {
    w0[array] = groups;
    w1[array] = Lanes::high_half(groups);
    w2[array] = Lanes::all_words(step);
    w3[array] = Lanes::all_words(array);
  }
#pragma GCC unroll 8
  for (int round = 0; round < kRoundingRounds; ++round) {
#pragma GCC unroll 3
    for (int array = 0; array < 3; ++array) {
      const Words a = Lanes::product(factor0, w0[array]), b = Lanes::product(factor2, w2[array]);
      w0[array] = Lanes::xor_of(Lanes::high_half(b), w1[array], keys.first[round]);
      w2[array] = Lanes::xor_of(Lanes::high_half(a), w3[array], keys.second[round]);
      w1[array] = b;
      w3[array] = a;
    }
  }
#pragma GCC unroll 3
  for (int array = 0; array < 3; ++array) {
    const Words first = Lanes::joined(w0[array], w1[array]), second = Lanes::joined(w2[array], w3[array]);
    bits[array] = {Lanes::even_pairs(first, second), Lanes::odd_pairs(first, second)};
  }
}

/// Elements of even and odd place in fp32.
template <typename Lanes>
struct Halves {
  typename Lanes::Floats even, odd;
};

template <typename Lanes>
APUS_LANES_INLINE Halves<Lanes> widened(typename Lanes::Words pairs) {
  return {Lanes::as_floats(Lanes::even_to_top(pairs)), Lanes::as_floats(Lanes::odd_at_top(pairs))};
}

template <typename Lanes, bool kGradIsBf16>
APUS_LANES_INLINE Halves<Lanes> load_grad_halves(const void* grad, int64_t at) {
  if constexpr (kGradIsBf16)
    return widened<Lanes>(Lanes::load_words(static_cast<const uint16_t*>(grad) + at));
  const float* from = static_cast<const float*>(grad) + at;
  const auto first = Lanes::load(from), second = Lanes::load(from + Lanes::kWidth);
  return {Lanes::even_of(first, second), Lanes::odd_of(first, second)};
}

/// Adds sixteen random bits below the kept ones and keeps the upper halves; not for NaN.
template <typename Lanes>
APUS_LANES_INLINE typename Lanes::Words rounded_with(const Halves<Lanes>& values,
                                                     typename Lanes::Words random) {
  const auto even = Lanes::add_words(Lanes::as_words(values.even), Lanes::even_at_bottom(random));
  const auto odd = Lanes::add_words(Lanes::as_words(values.odd), Lanes::odd_to_bottom(random));
  return Lanes::tops_of(even, odd);
}

/// Updates elements from `at` on, as many as a register holds of 16 bits. False, with nothing written, where
/// one becomes a NaN: a NaN of any state makes one of the parameter.
template <typename Lanes, bool kGradIsBf16>
APUS_LANES_INLINE bool update_pairs(const AdamwArrays16& a, int64_t at, const Coefficients<Lanes>& c,
                                    const typename Lanes::Words (&random)[3]) {
  const auto master = widened<Lanes>(Lanes::load_words(a.master + at)),
             exp_avg = widened<Lanes>(Lanes::load_words(a.exp_avg + at)),
             exp_avg_sq = widened<Lanes>(Lanes::load_words(a.exp_avg_sq + at)),
             grad = load_grad_halves<Lanes, kGradIsBf16>(a.grad, at);
  Element<Lanes> even{master.even, exp_avg.even, exp_avg_sq.even},
      odd{master.odd, exp_avg.odd, exp_avg_sq.odd};
  update<Lanes, false>(even, grad.even, c);
  update<Lanes, false>(odd, grad.odd, c);
  if (__builtin_expect(Lanes::any_nan(even.master, odd.master), 0)) return false;
  Lanes::store(a.master + at, rounded_with<Lanes>({even.master, odd.master}, random[0]));
  Lanes::store(a.exp_avg + at, rounded_with<Lanes>({even.exp_avg, odd.exp_avg}, random[1]));
  Lanes::store(a.exp_avg_sq + at, rounded_with<Lanes>({even.exp_avg_sq, odd.exp_avg_sq}, random[2]));
  return true;
}

template <typename Lanes, bool kGradIsBf16>
void update_bf16(const AdamwArrays16& a, int64_t count, const AdamwCoefficients& c,
                 const AdamwRounding& rounding) {
  constexpr int64_t kTurn = Lanes::kGroups * kRoundingGroup, kHalf = kTurn / 2;
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
    const auto groups =
        Lanes::groups_from(static_cast<uint64_t>(rounding.first_element + at) / kRoundingGroup);
    RandomBits<Lanes> bits[3];
    random_bits<Lanes>(groups, rounding.step, keys, bits);
    if (!update_pairs<Lanes, kGradIsBf16>(a, at, wide, {bits[0].low, bits[1].low, bits[2].low}))
      portable(at, at + kHalf);
    if (!update_pairs<Lanes, kGradIsBf16>(a, at + kHalf, wide, {bits[0].high, bits[1].high, bits[2].high}))
      portable(at + kHalf, at + kTurn);
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
