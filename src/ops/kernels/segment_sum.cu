// Sums by segment without atomics: a block a segment reads all segment numbers and adds up its own values,
// each thread a fixed share of them, then a tree over the threads. Meant for a few dozen segments of some
// thousand values (answers and their tokens), where the time is that of a launch.
#include "ops/kernels/segment_sum.h"

#include <algorithm>

#include "ops/kernels/launch_check.h"

namespace apus::ops::kernels {
namespace {

constexpr int64_t kMostBlocks = 1 << 16;
constexpr int kThreads = 256;

template <typename T>
__global__ void sum_segments(SegmentValues<T> all, T* sums, int64_t segments) {
  __shared__ double part[kThreads];
  for (int64_t segment = blockIdx.x; segment < segments; segment += gridDim.x) {
    double sum = 0.0;
    for (int64_t m = threadIdx.x; m < all.count; m += kThreads) {
      if (all.segments[m] == segment) sum += static_cast<double>(all.values[m * all.stride]);
    }
    part[threadIdx.x] = sum;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[segment] = static_cast<T>(part[0]);
    __syncthreads();
  }
}

template <typename T>
void launch(const SegmentValues<T>& all, T* sums, int64_t segments, cudaStream_t stream) {
  if (segments == 0) return;
  sum_segments<T>
      <<<static_cast<unsigned>(std::min(segments, kMostBlocks)), kThreads, 0, stream>>>(all, sums, segments);
  check_launch("segment_sum");
}

}  // namespace

void segment_sum(const SegmentValues<float>& all, float* sums, int64_t segments, cudaStream_t stream) {
  launch(all, sums, segments, stream);
}

void segment_sum(const SegmentValues<double>& all, double* sums, int64_t segments, cudaStream_t stream) {
  launch(all, sums, segments, stream);
}

}  // namespace apus::ops::kernels
