// The AdamW pass in registers of 512 bits; adamw_lanes.h has the story.
#include "optim/adamw_kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <algorithm>

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
  using Halves = __m256i;  // as many numbers of 16 bits
  using Words = __m512i;
  static constexpr int64_t kWidth = 16;
  static constexpr int64_t kGroups = 8;

  static Floats all(float value) { return _mm512_set1_ps(value); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static Halves load(const uint16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(float* to, Floats values) { _mm512_storeu_ps(to, values); }
  static void store(uint16_t* to, Halves values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), values);
  }
  static void stream_line(uint16_t* to, const Halves (&line)[2]) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to),
                        _mm512_inserti64x4(_mm512_castsi256_si512(line[0]), line[1], 1));
  }
  static void end_streams() { _mm_sfence(); }

  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  static Floats root(Floats a) { return _mm512_sqrt_ps(a); }
  static Floats widen(Halves a) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(a), 16));
  }

  /// The upper halves of values + addend; a NaN as c10::BFloat16 writes it.
  static Halves upper_halves(Floats values, __m512i addend) {
    const __m512i sum = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(values), addend), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(sum, is_nan, _mm512_set1_epi32(0x7FC0)));
  }
  static Halves round_to_nearest(Floats values) {
    const __m512i last_kept =
        _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(values), 16), _mm512_set1_epi32(1));
    return upper_halves(values, _mm512_add_epi32(last_kept, _mm512_set1_epi32(0x7FFF)));
  }
  static Halves round_with(Floats values, Halves random) {
    return upper_halves(values, _mm512_cvtepu16_epi32(random));
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
  static Halves first_halves(Words a) { return _mm512_castsi512_si256(a); }
  static Halves second_halves(Words a) { return _mm512_extracti64x4_epi64(a, 1); }
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
