// The sum over ranks of what an all_to_all brought, in rank order and in fp32.
//
// Reads each part once and writes the sum once: 2 (or 4) bytes an element and rank, and 4 an element. Memory
// bandwidth is the limit. A thread owns 16 bytes of a row and walks down the rows; four loads are under way
// before the first is added. Additions are in one order, each rounded once, so that bits depend on the values
// alone and are the CPU's.
#include "parallel/kernels/rank_sum.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "ops/kernels/vector.cuh"

namespace apus::parallel::kernels {
namespace {

using ops::kernels::kLanes;

constexpr int kThreads = 256;
constexpr int kAhead = 4;
constexpr int64_t kMostBlocks = 1 << 20;

template <typename T>
__device__ __forceinline__ void add(const uint4& raw, float (&sum)[kLanes<T>]) {
  float row[kLanes<T>];
  ops::kernels::unpack<T>(raw, row);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) sum[i] = __fadd_rn(sum[i], row[i]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    rank_sum(const T* __restrict__ parts, int64_t ranks, int64_t vectors, float* __restrict__ sums) {
  constexpr int kWidth = kLanes<T>;
  for (int64_t v = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; v < vectors;
       v += static_cast<int64_t>(gridDim.x) * kThreads) {
    float sum[kWidth];
    ops::kernels::unpack<T>(ops::kernels::load_vector(parts, v), sum);
    int64_t rank = 1;
    for (; rank + kAhead <= ranks; rank += kAhead) {
      uint4 raw[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) raw[i] = ops::kernels::load_vector(parts, (rank + i) * vectors + v);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) add<T>(raw[i], sum);
    }
    for (; rank < ranks; ++rank) add<T>(ops::kernels::load_vector(parts, rank * vectors + v), sum);
    float4* const to = reinterpret_cast<float4*>(sums + v * kWidth);
#pragma unroll
    for (int i = 0; i < kWidth / 4; ++i)
      to[i] = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
  }
}

template <typename T>
void launch(const RankRows& rows, float* sum, cudaStream_t stream) {
  const int64_t vectors = rows.elements / kLanes<T>;
  const auto grid = static_cast<unsigned>(std::min((vectors + kThreads - 1) / kThreads, kMostBlocks));
  rank_sum<T><<<grid, kThreads, 0, stream>>>(static_cast<const T*>(rows.parts), rows.ranks, vectors, sum);
}

}  // namespace

void launch_rank_sum(const RankRows& rows, float* sum, CUstream_st* stream) {
  if (rows.elements == 0 || rows.ranks == 0) return;
  if (rows.is_bf16) {
    launch<__nv_bfloat16>(rows, sum, stream);
  } else {
    launch<float>(rows, sum, stream);
  }
}

}  // namespace apus::parallel::kernels
