// RMS norm, forward and backward, each one pass.
//
// Forward fuses the residual addition: it reads x (and the residual), writes normed (and the sum) and 4 bytes
// a row. Backward fuses the gradient that passes by the norm: it reads x, d_normed and d_passed, writes dx;
// the weight's gradient stays in registers until a block is through with its rows. Memory bandwidth limits
// both: a row lives in registers between the sum over it and its use, each thread has kVectors loads of 16
// bytes of each tensor in flight, and one barrier a row (none where a warp holds it) joins the partial sums.
// Forward's blocks take a row and end, so that others load meanwhile: 8 percent faster than blocks that stay,
// and 10 to 15 faster than a ring of rows in shared memory (H200). Backward's stay where rows are wide or
// have sums. Narrow rows pass by the first-level cache on backward: 3 percent; wide ones lose 8 by it.
#include "ops/kernels/norm.h"

#include <algorithm>

#include "ops/kernels/early_launch.cuh"
#include "ops/kernels/persistent_grid.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kWarp = 32;
// 16-byte pieces of a row that a thread holds.
constexpr int kVectors = 4;
constexpr int kMaxThreads = 512;
// Threads whose registers fill a processor: 102 each suffice without the sums of d_weight, and let more run.
template <bool kWeight>
constexpr int kRegisterThreads = kWeight ? kMaxThreads : 640;
constexpr int kMaxWarps = kMaxThreads / kWarp;
// Rows that share a block, where a warp holds a row.
constexpr int kNarrowRows = 4;

/// The sum over the threads that hold a row, the same in all of them. `slots` alternates between two arrays
/// from row to row: a barrier then separates its reads from its next writes.
__device__ __forceinline__ float row_sum(float value, float* slots) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (blockDim.x == kWarp) return value;
  const int warps = blockDim.x / kWarp;
  if (threadIdx.x % kWarp == 0) slots[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < warps; ++warp) total += slots[warp];
  return total;
}

/// This thread's pieces of one row; zeros beyond its end.
template <typename T>
struct Pieces {
  uint4 raw[kVectors];

  /// kOnce: nobody reads the row again, so it takes no room in the first-level cache.
  template <bool kOnce = false>
  __device__ __forceinline__ void load(const T* row, int vectors) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      raw[i] = at >= vectors ? make_uint4(0, 0, 0, 0)
               : kOnce       ? load_vector_once(row, at)
                             : load_vector(row, at);
    }
  }
  __device__ __forceinline__ void store(T* row, int vectors) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      if (at < vectors) store_vector(row, at, raw[i]);
    }
  }
  __device__ __forceinline__ void keep_packed() {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) kernels::keep_packed(raw[i]);
  }
  /// Adds, and rounds as a tensor would.
  __device__ __forceinline__ void add(const Pieces& other) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float a[kLanes<T>], b[kLanes<T>];
      unpack<T>(raw[i], a);
      unpack<T>(other.raw[i], b);
#pragma unroll
      for (int j = 0; j < kLanes<T>; ++j) a[j] += b[j];
      raw[i] = pack<T>(a);
    }
  }
  __device__ __forceinline__ float sum_of_squares() const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float a[kLanes<T>];
      unpack<T>(raw[i], a);
#pragma unroll
      for (int j = 0; j < kLanes<T>; ++j) sum += a[j] * a[j];
    }
    return sum;
  }
};

template <typename T, bool kResidual>
__global__ void __launch_bounds__(kMaxThreads) forward_rows(NormForward job) {
  __shared__ float slots[kMaxWarps];
  const int vectors = static_cast<int>(job.columns) / kLanes<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  wait_for_turn();
  if (row >= job.rows) return;  // a warp that holds a row of its own
  Pieces<T> x, residual, weight;
  x.load(static_cast<const T*>(job.x) + row * job.x_stride, vectors);
  if constexpr (kResidual)
    residual.load(static_cast<const T*>(job.residual) + row * job.residual_stride, vectors);
  weight.load(static_cast<const T*>(job.weight), vectors);
  if constexpr (kResidual) {
    x.add(residual);
    x.store(static_cast<T*>(job.sum) + row * job.columns, vectors);
  }
  const float total = row_sum(x.sum_of_squares(), slots);
  x.keep_packed();
  const float scale = rsqrtf(total / static_cast<float>(job.columns) + job.eps);
  if (threadIdx.x == 0) job.scale[row] = scale;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    float a[kLanes<T>], w[kLanes<T>];
    unpack<T>(x.raw[i], a);
    unpack<T>(weight.raw[i], w);
#pragma unroll
    for (int j = 0; j < kLanes<T>; ++j) a[j] *= scale * w[j];
    x.raw[i] = pack<T>(a);
  }
  x.store(static_cast<T*>(job.normed) + row * job.normed_stride, vectors);
}

/// Sums of d_weight over this thread's columns; nothing where the weight is frozen.
template <typename T, bool kWanted>
struct WeightSums {
  __device__ __forceinline__ void add(int, int, float) {}
  __device__ __forceinline__ void store(float*, int) {}
};

template <typename T>
struct WeightSums<T, true> {
  float sums[kVectors][kLanes<T>] = {};

  __device__ __forceinline__ void add(int vector, int lane, float value) { sums[vector][lane] += value; }
  /// Writes the block's sums; where it holds several rows, all of its threads add theirs in order.
  __device__ __forceinline__ void store(float* row, int vectors) const {
    __shared__ float4 all[kNarrowRows][kWarp * kVectors * kLanes<T> / 4];
    float4* const to = reinterpret_cast<float4*>(row);
    each(vectors, [&](int at, const float4& mine) { (blockDim.y == 1 ? to : all[threadIdx.y])[at] = mine; });
    if (blockDim.y == 1) return;
    __syncthreads();
    const int threads = blockDim.x * blockDim.y, fours = vectors * kLanes<T> / 4;
    for (int at = threadIdx.y * blockDim.x + threadIdx.x; at < fours; at += threads) {
      float4 sum = all[0][at];
      for (int y = 1; y < static_cast<int>(blockDim.y); ++y) {
        const float4 more = all[y][at];
        sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
      }
      to[at] = sum;
    }
  }

 private:
  /// Calls body(index of four columns, their sums).
  template <typename Body>
  __device__ __forceinline__ void each(int vectors, const Body& body) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int vector = threadIdx.x + i * blockDim.x;
      if (vector >= vectors) continue;
#pragma unroll
      for (int j = 0; j < kLanes<T>; j += 4)
        body((vector * kLanes<T> + j) / 4,
             make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]));
    }
  }
};

/// kNarrow: a warp holds a row, and kNarrowRows share a block.
template <typename T, bool kWeight, bool kNarrow>
__global__ void __launch_bounds__(kRegisterThreads<kWeight>) backward_rows(NormBackward job) {
  __shared__ float slots[2][kMaxWarps];
  const int vectors = static_cast<int>(job.columns) / kLanes<T>;
  wait_for_turn();
  Pieces<T> weight;
  weight.load(static_cast<const T*>(job.weight), vectors);
  WeightSums<T, kWeight> sums;
  int turn = 0;
  for (int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; row < job.rows;
       row += int64_t{gridDim.x} * blockDim.y) {
    Pieces<T> x, dy, passed;
    x.template load<kNarrow>(static_cast<const T*>(job.x) + row * job.x_stride, vectors);
    dy.template load<kNarrow>(static_cast<const T*>(job.d_normed) + row * job.d_normed_stride, vectors);
    if (job.d_passed != nullptr)
      passed.template load<kNarrow>(static_cast<const T*>(job.d_passed) + row * job.d_passed_stride, vectors);
    const float scale = job.scale[row];
    float dot = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float a[kLanes<T>], g[kLanes<T>], w[kLanes<T>];
      unpack<T>(x.raw[i], a);
      unpack<T>(dy.raw[i], g);
      unpack<T>(weight.raw[i], w);
#pragma unroll
      for (int j = 0; j < kLanes<T>; ++j) {
        const float xhat = a[j] * scale;
        dot += g[j] * w[j] * xhat;
        sums.add(i, j, g[j] * xhat);
      }
    }
    if (job.dx == nullptr) continue;
    const float mean = row_sum(dot, slots[turn]) / static_cast<float>(job.columns);
    turn ^= 1;
    x.keep_packed();
    dy.keep_packed();
    weight.keep_packed();
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float a[kLanes<T>], g[kLanes<T>], w[kLanes<T>], p[kLanes<T>] = {};
      unpack<T>(x.raw[i], a);
      unpack<T>(dy.raw[i], g);
      unpack<T>(weight.raw[i], w);
      if (job.d_passed != nullptr) unpack<T>(passed.raw[i], p);
#pragma unroll
      for (int j = 0; j < kLanes<T>; ++j) a[j] = p[j] + scale * (g[j] * w[j] - a[j] * scale * mean);
      x.raw[i] = pack<T>(a);
    }
    x.store(static_cast<T*>(job.dx) + row * job.dx_stride, vectors);
  }
  if (kWeight) sums.store(job.partials + int64_t{blockIdx.x} * job.columns, vectors);
}

/// Threads that hold a row, and rows that share a block.
dim3 block_of(int64_t columns, Element element) {
  const auto vectors = static_cast<int>(columns / elements_a_vector(element));
  const int warps = std::max(1, (vectors + kVectors * kWarp - 1) / (kVectors * kWarp));
  return dim3(static_cast<unsigned>(warps * kWarp), warps == 1 ? kNarrowRows : 1);
}

/// Blocks that take their rows once and end.
int64_t blocks_of_rows(int64_t rows, dim3 block) {
  return (rows + block.y - 1) / block.y;
}

bool is_narrow(dim3 block) {
  return block.x == kWarp;
}

/// Blocks that stay and share the rows evenly.
template <typename Kernel>
int64_t resident_grid(Kernel kernel, int64_t rows, dim3 block) {
  return persistent_grid(kernel, static_cast<int>(block.x * block.y), blocks_of_rows(rows, block));
}

template <typename T, bool kResidual>
void forward(const NormForward& job, dim3 block, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(blocks_of_rows(job.rows, block));
  launch_early(forward_rows<T, kResidual>, {grid, block, stream}, job);
  check_launch("norm_forward");
}

/// Blocks of a backward that sums d_weight: each costs a row of partials, so a block has some rows to sum.
template <typename T>
int64_t summing_grid(int64_t rows, dim3 block) {
  constexpr int64_t kRowsABlock = 4;
  const auto kernel = is_narrow(block) ? backward_rows<T, true, true> : backward_rows<T, true, false>;
  return std::min(resident_grid(kernel, rows, block), std::max<int64_t>(1, rows / (block.y * kRowsABlock)));
}

template <typename T>
void backward(const NormBackward& job, dim3 block, cudaStream_t stream) {
  if (job.partials != nullptr) {
    const auto grid = static_cast<unsigned>(summing_grid<T>(job.rows, block));
    launch_early(is_narrow(block) ? backward_rows<T, true, true> : backward_rows<T, true, false>,
                 {grid, block, stream}, job);
  } else if (is_narrow(block)) {
    const auto grid = static_cast<unsigned>(blocks_of_rows(job.rows, block));
    launch_early(backward_rows<T, false, true>, {grid, block, stream}, job);
  } else {
    const auto kernel = backward_rows<T, false, false>;
    const auto grid = static_cast<unsigned>(resident_grid(kernel, job.rows, block));
    launch_early(kernel, {grid, block, stream}, job);
  }
  check_launch("norm_backward");
}

}  // namespace

void norm_forward(const NormForward& job, Element element, cudaStream_t stream) {
  const dim3 block = block_of(job.columns, element);
  const bool adds = job.residual != nullptr;
  if (element == Element::kBf16)
    adds ? forward<__nv_bfloat16, true>(job, block, stream)
         : forward<__nv_bfloat16, false>(job, block, stream);
  else
    adds ? forward<float, true>(job, block, stream) : forward<float, false>(job, block, stream);
}

int64_t norm_partials(int64_t rows, int64_t columns, Element element) {
  const dim3 block = block_of(columns, element);
  return element == Element::kBf16 ? summing_grid<__nv_bfloat16>(rows, block)
                                   : summing_grid<float>(rows, block);
}

void norm_backward(const NormBackward& job, Element element, cudaStream_t stream) {
  const dim3 block = block_of(job.columns, element);
  if (element == Element::kBf16)
    backward<__nv_bfloat16>(job, block, stream);
  else
    backward<float>(job, block, stream);
}

}  // namespace apus::ops::kernels
