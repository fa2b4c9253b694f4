// Column sums of a few hundred fp32 rows that blocks of another kernel wrote. They are still in the L2; 32
// rows are added side by side, then their sums by shuffles, in a fixed order. Its time is a launch and some
// latency.
#include "ops/kernels/partial_sums.h"

#include "ops/kernels/early_launch.cuh"
#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kWidth = 32;

template <typename T>
__global__ void __launch_bounds__(kWidth* kWidth)
    add_rows(const float* __restrict__ partials, int64_t count, int64_t columns, T* __restrict__ out) {
  __shared__ float sums[kWidth][kWidth + 1];
  const int64_t column = int64_t{blockIdx.x} * kWidth + threadIdx.x;
  wait_for_turn();
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 16
    for (int64_t row = threadIdx.y; row < count; row += kWidth) sum += partials[row * columns + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Warp y adds column y's sums.
  float total = sums[threadIdx.x][threadIdx.y];
#pragma unroll
  for (int offset = kWidth / 2; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
  const int64_t of_warp = int64_t{blockIdx.x} * kWidth + threadIdx.y;
  if (threadIdx.x == 0 && of_warp < columns) out[of_warp] = narrow<T>(total);
}

}  // namespace

void sum_partials(const float* partials, int64_t count, int64_t columns, void* out, Element element,
                  cudaStream_t stream) {
  if (columns == 0) return;
  const dim3 threads(kWidth, kWidth);
  const auto blocks = static_cast<unsigned>((columns + kWidth - 1) / kWidth);
  if (element == Element::kBf16)
    launch_early(add_rows<__nv_bfloat16>, {blocks, threads, stream}, partials, count, columns,
                 static_cast<__nv_bfloat16*>(out));
  else
    launch_early(add_rows<float>, {blocks, threads, stream}, partials, count, columns,
                 static_cast<float*>(out));
  check_launch("sum_partials");
}

}  // namespace apus::ops::kernels
