// Rows of gradients and their factors. scale_rows reads and writes each row once, for memory to limit it;
// require_scale reads two factors a row and writes a row only where they differ.
#include "ops/kernels/scaled_rows.h"

#include <algorithm>

#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int64_t kMostBlocks = 1 << 16;
constexpr int kRowThreads = 256;

template <typename T>
__global__ void scale_rows(GradientRows all, const float* scale) {
  constexpr int kWidth = kLanes<T>;
  const int64_t vectors = all.width / kWidth;
  for (int64_t row = blockIdx.x; row < all.rows; row += gridDim.x) {
    const float factor = scale[row];
    const uint4* const in = static_cast<const uint4*>(all.in) + row * vectors;
    uint4* const out = static_cast<uint4*>(all.out) + row * vectors;
    for (int64_t v = threadIdx.x; v < vectors; v += blockDim.x) {
      float x[kWidth];
      unpack<T>(in[v], x);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) x[i] *= factor;
      out[v] = pack<T>(x);
    }
  }
}

template <typename T>
__global__ void require_scale(GradientRows all, const float* found, const float* expected) {
  constexpr int kWidth = kLanes<T>;
  const int64_t vectors = all.width / kWidth;
  const int warps = static_cast<int>(blockDim.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / 32; row < all.rows;
       row += static_cast<int64_t>(gridDim.x) * warps) {
    if (fabsf(found[row] - expected[row]) <= 1e-4F * fabsf(expected[row])) continue;
    float x[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x[i] = NAN;
    uint4* const out = static_cast<uint4*>(all.out) + row * vectors;
    for (int64_t v = lane; v < vectors; v += 32) out[v] = pack<T>(x);
  }
}

}  // namespace

void launch_scale_rows(const GradientRows& rows, const float* scale, cudaStream_t stream) {
  if (rows.rows == 0) return;
  const auto blocks = static_cast<unsigned>(std::min(rows.rows, kMostBlocks));
  const auto kernel = rows.element == Element::kBf16 ? scale_rows<__nv_bfloat16> : scale_rows<float>;
  kernel<<<blocks, kRowThreads, 0, stream>>>(rows, scale);
  check_launch("scale_rows");
}

void launch_require_scale(const GradientRows& rows, const float* found, const float* expected,
                          cudaStream_t stream) {
  if (rows.rows == 0) return;
  constexpr int64_t kRowsABlock = kRowThreads / 32;
  const auto blocks =
      static_cast<unsigned>(std::min((rows.rows + kRowsABlock - 1) / kRowsABlock, kMostBlocks));
  const auto kernel = rows.element == Element::kBf16 ? require_scale<__nv_bfloat16> : require_scale<float>;
  kernel<<<blocks, kRowThreads, 0, stream>>>(rows, found, expected);
  check_launch("require_scale");
}

}  // namespace apus::ops::kernels
