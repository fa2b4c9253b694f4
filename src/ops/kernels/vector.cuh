#pragma once

#include <cuda_bf16.h>

#include <cstdint>

// Sixteen bytes at a time: how element-wise kernels read and write, whatever the dtype.
namespace apus::ops::kernels {

/// Elements in 16 bytes.
template <typename T>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(T));

/// Vector `index` of memory that the kernel only reads.
template <typename T>
__device__ __forceinline__ uint4 load_vector(const T* from, int64_t index) {
  return __ldg(reinterpret_cast<const uint4*>(from) + index);
}

/// The same where nobody near reads it again: it takes no room in the first-level cache.
template <typename T>
__device__ __forceinline__ uint4 load_vector_once(const T* from, int64_t index) {
  uint4 raw;
  // volatile, or it could move to before the kernel's turn (early_launch.cuh)
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
               : "l"(reinterpret_cast<const uint4*>(from) + index));
  return raw;
}

template <typename T>
__device__ __forceinline__ void store_vector(T* to, int64_t index, const uint4& raw) {
  reinterpret_cast<uint4*>(to)[index] = raw;
}

/// Makes the compiler keep these sixteen bytes rather than the wider values that it has made of them.
__device__ __forceinline__ void keep_packed(uint4& raw) {
  asm volatile("" : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w));
}

/// The elements of a vector in fp32.
template <typename T>
__device__ __forceinline__ void unpack(const uint4& raw, float (&values)[kLanes<T>]) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      values[i] = __uint_as_float(words[i]);
    } else {
      values[2 * i] = __uint_as_float(words[i] << 16);
      values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
}

/// fp32 values rounded to nearest even.
template <typename T>
__device__ __forceinline__ uint4 pack(const float (&values)[kLanes<T>]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      words[i] = __float_as_uint(values[i]);
    } else {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      words[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// One element in fp32, and back.
__device__ __forceinline__ float widen(float value) {
  return value;
}
__device__ __forceinline__ float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <typename T>
__device__ __forceinline__ T narrow(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    return __float2bfloat16_rn(value);
  }
}

}  // namespace apus::ops::kernels
