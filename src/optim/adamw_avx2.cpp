// The AdamW pass in registers of 256 bits; adamw_lanes.h has the story.
#include "optim/adamw_kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <algorithm>
#include <limits>

#include "optim/adamw_rows.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC optimize("O3", "fp-contract=off")
#pragma GCC target("avx2,fma")
#endif
#include "optim/adamw_lanes.h"

namespace apus::optim::detail {
namespace {

struct Avx2 {
  using Floats = __m256;
  using Words = __m256i;
  static constexpr int64_t kWidth = 8;
  static constexpr int64_t kGroups = 4;

  static Floats all(float value) { return _mm256_set1_ps(value); }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static Floats load_wide(const uint16_t* from) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return as_floats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static Words load_words(const uint16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(float* to, Floats values) { _mm256_storeu_ps(to, values); }
  static void store(uint16_t* to, Words values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), values);
  }
  static void stream(uint16_t* to, Words values) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), values);
  }
  static void end_streams() { _mm_sfence(); }

  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  static Floats root(Floats a) { return _mm256_sqrt_ps(a); }
  static Floats fused_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats fused_subtract_from(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(b, c, a); }
  static Floats where_finite(Floats a, Floats then) {
    const Floats finite = _mm256_cmp_ps(a, all(std::numeric_limits<float>::infinity()), _CMP_LT_OQ);
    return _mm256_blendv_ps(a, then, finite);
  }
  static bool any_nan(Floats a, Floats b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
  }

  static Floats as_floats(Words a) { return _mm256_castsi256_ps(a); }
  static Words as_words(Floats a) { return _mm256_castps_si256(a); }
  static Words add_words(Words a, Words b) { return _mm256_add_epi32(a, b); }
  static Words even_to_top(Words a) { return _mm256_slli_epi32(a, 16); }
  static Words odd_at_top(Words a) { return _mm256_and_si256(a, _mm256_set1_epi32(~0xFFFF)); }
  static Words even_at_bottom(Words a) { return _mm256_and_si256(a, _mm256_set1_epi32(0xFFFF)); }
  static Words odd_to_bottom(Words a) { return _mm256_srli_epi32(a, 16); }
  static Words tops_of(Words even, Words odd) {
    return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xAA);
  }
  // 128 bits of each register in turn, put in order.
  static Floats even_of(Floats first, Floats second) {
    return in_order(_mm256_castps_pd(_mm256_shuffle_ps(first, second, 0x88)));
  }
  static Floats odd_of(Floats first, Floats second) {
    return in_order(_mm256_castps_pd(_mm256_shuffle_ps(first, second, 0xDD)));
  }
  static Floats in_order(__m256d mixed) { return _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, 0xD8)); }

  /// To bf16 with ties to even, in the lower halves; not for NaN.
  static Words rounded(Floats values) {
    const Words bits = as_words(values);
    const Words to_even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(add_words(add_words(bits, _mm256_set1_epi32(0x7FFF)), to_even), 16);
  }
  static Words round_to_nearest(Floats first, Floats second) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded(first), rounded(second)), 0xD8);
  }

  static Words all_words(uint32_t word) { return _mm256_set1_epi64x(word); }
  /// Numbers of four groups from `first` on, ordered so that even_pairs holds the first two.
  static Words groups_from(uint64_t first) {
    return _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(first)), _mm256_setr_epi64x(0, 2, 1, 3));
  }
  static Words product(Words a, Words b) { return _mm256_mul_epu32(a, b); }
  static Words high_half(Words a) { return _mm256_srli_epi64(a, 32); }
  static Words xor_of(Words a, Words b, Words c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
  static Words joined(Words low, Words high) {
    return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xAA);
  }
  static Words even_pairs(Words a, Words b) { return _mm256_unpacklo_epi64(a, b); }
  static Words odd_pairs(Words a, Words b) { return _mm256_unpackhi_epi64(a, b); }
};

constexpr AdamwKernels kKernels = kernels_of<Avx2>("avx2");

}  // namespace
}  // namespace apus::optim::detail

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace apus::optim::detail {

const AdamwKernels* avx2_adamw() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kKernels : nullptr;
}

}  // namespace apus::optim::detail
#else

namespace apus::optim::detail {

const AdamwKernels* avx2_adamw() {
  return nullptr;
}

}  // namespace apus::optim::detail
#endif
