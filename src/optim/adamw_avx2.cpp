// The AdamW pass in registers of 256 bits; adamw_lanes.h has the story.
#include "optim/adamw_kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <algorithm>

#include "optim/adamw_rows.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC optimize("O3", "fp-contract=off")
#pragma GCC target("avx2")
#endif
#include "optim/adamw_lanes.h"

namespace apus::optim::detail {
namespace {

struct Avx2 {
  using Floats = __m256;
  using Halves = __m128i;  // as many numbers of 16 bits
  using Words = __m256i;
  static constexpr int64_t kWidth = 8;
  static constexpr int64_t kGroups = 4;

  static Floats all(float value) { return _mm256_set1_ps(value); }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static Halves load(const uint16_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  static void store(float* to, Floats values) { _mm256_storeu_ps(to, values); }
  static void store(uint16_t* to, Halves values) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), values); }
  static void stream_line(uint16_t* to, const Halves (&line)[4]) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), _mm256_set_m128i(line[1], line[0]));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 16), _mm256_set_m128i(line[3], line[2]));
  }
  static void end_streams() { _mm_sfence(); }

  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  static Floats root(Floats a) { return _mm256_sqrt_ps(a); }
  static Floats widen(Halves a) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(a), 16));
  }

  /// The upper halves of values + addend; a NaN as c10::BFloat16 writes it.
  static Halves upper_halves(Floats values, __m256i addend) {
    const __m256i sum = _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(values), addend), 16);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m256i kept = _mm256_blendv_epi8(sum, _mm256_set1_epi32(0x7FC0), is_nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1));
  }
  static Halves round_to_nearest(Floats values) {
    const __m256i last_kept =
        _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(values), 16), _mm256_set1_epi32(1));
    return upper_halves(values, _mm256_add_epi32(last_kept, _mm256_set1_epi32(0x7FFF)));
  }
  static Halves round_with(Floats values, Halves random) {
    return upper_halves(values, _mm256_cvtepu16_epi32(random));
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
  static Halves first_halves(Words a) { return _mm256_castsi256_si128(a); }
  static Halves second_halves(Words a) { return _mm256_extracti128_si256(a, 1); }
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
  return __builtin_cpu_supports("avx2") ? &kKernels : nullptr;
}

}  // namespace apus::optim::detail
#else

namespace apus::optim::detail {

const AdamwKernels* avx2_adamw() {
  return nullptr;
}

}  // namespace apus::optim::detail
#endif
