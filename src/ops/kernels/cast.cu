// bf16 to fp32: reads 2 bytes an element and writes 4. Memory bandwidth limits it: a thread has kAhead loads
// of four elements in flight, and each of its stores is 16 bytes beside its neighbour's.
#include "ops/kernels/cast.h"

#include <cstdint>

#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;
constexpr int kFour = 4;

__device__ __forceinline__ float4 four_of(uint2 raw) {
  return make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u),
                     __uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xffff0000u));
}

__global__ void __launch_bounds__(kThreads)
    widen_fours(const uint2* __restrict__ narrow, float4* __restrict__ wide, int64_t fours) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kAhead + threadIdx.x;
  uint2 raw[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (first + i * kThreads < fours) raw[i] = __ldg(narrow + first + i * kThreads);
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (first + i * kThreads < fours) wide[first + i * kThreads] = four_of(raw[i]);
}

__global__ void __launch_bounds__(kThreads)
    widen_ones(const __nv_bfloat16* __restrict__ narrow, float* __restrict__ wide, int64_t count) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < count) wide[at] = widen(narrow[at]);
}

unsigned blocks_of(int64_t count, int64_t a_block) {
  return static_cast<unsigned>((count + a_block - 1) / a_block);
}

}  // namespace

void widen(const void* narrow, float* wide, int64_t count, cudaStream_t stream) {
  const auto* from = static_cast<const __nv_bfloat16*>(narrow);
  const bool is_aligned =
      reinterpret_cast<uintptr_t>(narrow) % 8 == 0 && reinterpret_cast<uintptr_t>(wide) % 16 == 0;
  const int64_t fours = is_aligned ? count / kFour : 0, rest = count - fours * kFour;
  if (fours > 0)
    widen_fours<<<blocks_of(fours, kThreads * kAhead), kThreads, 0, stream>>>(
        static_cast<const uint2*>(narrow), reinterpret_cast<float4*>(wide), fours);
  if (rest > 0)
    widen_ones<<<blocks_of(rest, kThreads), kThreads, 0, stream>>>(from + fours * kFour, wide + fours * kFour,
                                                                   rest);
  check_launch("widen");
}

}  // namespace apus::ops::kernels
