// The AdamW pass in registers of 512 bits; adamw_lanes.h has the story.
#include "optim/adamw_kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <algorithm>
#include <limits>

#include "optim/adamw_rows.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC diagnostic push
// GCC 12 takes the undefined registers of its own header for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC optimize("O3", "fp-contract=off")
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
#endif
#include "optim/adamw_lanes.h"

namespace apus::optim::detail {
namespace {

struct Avx512 {
  using Floats = __m512;
  using Words = __m512i;
  static constexpr int64_t kWidth = 16;
  static constexpr int64_t kGroups = 8;

  static Floats all(float value) { return _mm512_set1_ps(value); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static Floats load_wide(const uint16_t* from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return as_floats(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static Words load_words(const uint16_t* from) { return _mm512_loadu_si512(from); }
  static void store(float* to, Floats values) { _mm512_storeu_ps(to, values); }
  static void store(uint16_t* to, Words values) { _mm512_storeu_si512(to, values); }
  static void stream(uint16_t* to, Words values) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), values);
  }
  static void end_streams() { _mm_sfence(); }

  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  static Floats root(Floats a) { return _mm512_sqrt_ps(a); }
  static Floats fused_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats fused_subtract_from(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(b, c, a); }
  static Floats where_finite(Floats a, Floats then) {
    const __mmask16 finite = _mm512_cmp_ps_mask(a, all(std::numeric_limits<float>::infinity()), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(a, finite, then);
  }
  static bool any_nan(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0; }

  static Floats as_floats(Words a) { return _mm512_castsi512_ps(a); }
  static Words as_words(Floats a) { return _mm512_castps_si512(a); }
  static Words add_words(Words a, Words b) { return _mm512_add_epi32(a, b); }
  static Words even_to_top(Words a) { return _mm512_slli_epi32(a, 16); }
  static Words odd_at_top(Words a) { return _mm512_and_si512(a, _mm512_set1_epi32(~0xFFFF)); }
  static Words even_at_bottom(Words a) { return _mm512_and_si512(a, _mm512_set1_epi32(0xFFFF)); }
  static Words odd_to_bottom(Words a) { return _mm512_srli_epi32(a, 16); }
  static Words tops_of(Words even, Words odd) {
    return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(even, 16), odd);
  }
  static Floats even_of(Floats first, Floats second) {
    const Words places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(first, places, second);
  }
  static Floats odd_of(Floats first, Floats second) {
    const Words places = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(first, places, second);
  }

  /// What makes the upper half of a number that of bf16 with ties to even; not for NaN.
  static Words raised(Floats values) {
    const Words bits = as_words(values);
    const Words to_even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return add_words(add_words(bits, _mm512_set1_epi32(0x7FFF)), to_even);
  }
  static Words round_to_nearest(Floats first, Floats second) {
    return _mm512_permutex2var_epi16(raised(first), upper_halves(), raised(second));
  }
  /// The odd 16-bit places of two registers.
  static Words upper_halves() {
    const Words even = _mm512_setr_epi32(1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61);
    return _mm512_or_si512(even, _mm512_slli_epi32(_mm512_add_epi32(even, _mm512_set1_epi32(2)), 16));
  }

  static Words all_words(uint32_t word) { return _mm512_set1_epi64(word); }
  /// Numbers of eight groups from `first` on, ordered so that even_pairs holds the first four.
  static Words groups_from(uint64_t first) {
    return _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(first)),
                            _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7));
  }
  static Words product(Words a, Words b) { return _mm512_mul_epu32(a, b); }
  static Words high_half(Words a) { return _mm512_srli_epi64(a, 32); }
  static Words xor_of(Words a, Words b, Words c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
  static Words joined(Words low, Words high) {
    return _mm512_mask_mov_epi32(low, 0xAAAA, _mm512_slli_epi64(high, 32));
  }
  static Words even_pairs(Words a, Words b) { return _mm512_unpacklo_epi64(a, b); }
  static Words odd_pairs(Words a, Words b) { return _mm512_unpackhi_epi64(a, b); }
};

constexpr AdamwKernels kKernels = kernels_of<Avx512>("avx512");

}  // namespace
}  // namespace apus::optim::detail

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif

namespace apus::optim::detail {

const AdamwKernels* avx512_adamw() {
  const bool known = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return known ? &kKernels : nullptr;
}

}  // namespace apus::optim::detail
#else

namespace apus::optim::detail {

const AdamwKernels* avx512_adamw() {
  return nullptr;
}

}  // namespace apus::optim::detail
#endif
