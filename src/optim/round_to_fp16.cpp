#include "optim/round_to_fp16.h"

#include <c10/util/Half.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace apus::optim::detail {
namespace {

#if defined(__x86_64__)
/// What does not fill a vector is left; returns where that begins.
__attribute__((target("avx,f16c"))) int64_t round_vectors(const float* from, uint16_t* to, int64_t count) {
  constexpr int64_t kWidth = 8;
  int64_t at = 0;
  for (; at + kWidth <= count; at += kWidth) {
    const __m128i rounded = _mm256_cvtps_ph(_mm256_loadu_ps(from + at), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at), rounded);
  }
  return at;
}

bool has_conversion() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}
#else
int64_t round_vectors(const float*, uint16_t*, int64_t) {
  return 0;
}

bool has_conversion() {
  return false;
}
#endif

}  // namespace

void round_to_fp16_portably(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = c10::detail::fp16_ieee_from_fp32_value(from[i]);
}

void round_to_fp16(const float* from, uint16_t* to, int64_t count) {
  const int64_t done = has_conversion() ? round_vectors(from, to, count) : 0;
  round_to_fp16_portably(from + done, to + done, count - done);
}

}  // namespace apus::optim::detail
