// Rotary embedding behind norms of queries and keys, one pass each way, see rotary.cu. The threads of a head
// are neighbours in a warp and sum over it by shuffles. Forward writes 4 bytes a head for backward, which
// reads the heads before their norm again beside the gradients. The weights' gradients stay in registers
// until a block is through with its rows; its heads are then added in order, and the blocks by sum_partials.
#include "ops/kernels/rotary.cuh"

namespace apus::ops::kernels {
namespace {

// Heads that a thread has in flight: fewer than without norms, for there are more registers to fill.
constexpr int kHeads = 2;
constexpr int kForwardThreads = 256;
// Backward's registers suffice for some 480 threads a processor: small blocks come nearest.
constexpr int kBackwardThreads = 128;

/// The threads of this one's warp: the block's last may be short.
__device__ __forceinline__ unsigned warp_mask() {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned behind = blockDim.x * blockDim.y * blockDim.z - thread / 32 * 32;
  return behind >= 32 ? 0xffffffffu : (1u << behind) - 1;
}

/// Sum over the threads of a head, which are a power of two.
__device__ __forceinline__ float head_sum(float value, unsigned mask) {
  for (unsigned offset = blockDim.x / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(mask, value, static_cast<int>(offset));
  return value;
}

/// Weights of both norms for this thread's piece.
template <typename T>
struct Weights {
  Halves<T> q, k;

  __device__ __forceinline__ Weights(const HeadNorm& norm, int half) {
    q.load(static_cast<const T*>(norm.q_weight), half);
    k.load(static_cast<const T*>(norm.k_weight), half);
  }
  __device__ __forceinline__ void keep_packed() {
    q.keep_packed();
    k.keep_packed();
  }
  __device__ __forceinline__ void of(bool is_q, float (&low)[kLanes<T>], float (&high)[kLanes<T>]) const {
    Halves<T> chosen;
    chosen.low = is_q ? q.low : k.low;
    chosen.high = is_q ? q.high : k.high;
    chosen.widen(low, high);
  }
};

template <typename T>
__global__ void __launch_bounds__(kForwardThreads) forward_rows(RotaryRows job, HeadNorm norm) {
  const int normed = job.q.heads + job.k.heads, total = normed + job.v.heads, half = job.head_dim / 2;
  const int side_by_side = static_cast<int>(blockDim.y);
  Weights<T> weights(norm, half);
  const unsigned mask = warp_mask();
  // All threads of a warp stay in these loops together, rows or not: they meet in head_sum.
  for (int64_t first = int64_t{blockIdx.x} * blockDim.z; first < job.rows;
       first += int64_t{gridDim.x} * blockDim.z) {
    const int64_t row = min(first + threadIdx.z, job.rows - 1);
    const int mine = first + threadIdx.z < job.rows ? total : 0;
    Angles<T> angles;
    angles.load(job, row);
    for (int base = 0; base < total; base += side_by_side * kHeads) {
      Halves<T> x[kHeads];
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        const int head = base + i * side_by_side + static_cast<int>(threadIdx.y);
        x[i].clear();
        if (head < mine) x[i].load(HeadPlace<T>(job, row, head).in, half);
      }
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        const int head = base + i * side_by_side + static_cast<int>(threadIdx.y);
        float a[kLanes<T>], b[kLanes<T>], w_low[kLanes<T>], w_high[kLanes<T>], squares = 0.0f;
        angles.keep_packed();
        weights.keep_packed();
        x[i].widen(a, b);
#pragma unroll
        for (int j = 0; j < kLanes<T>; ++j) squares += a[j] * a[j] + b[j] * b[j];
        const float scale = rsqrtf(head_sum(squares, mask) / static_cast<float>(job.head_dim) + norm.eps);
        if (head >= mine) continue;
        if (head < normed) {
          if (threadIdx.x == 0) norm.scale[row * normed + head] = scale;
          weights.of(head < job.q.heads, w_low, w_high);
#pragma unroll
          for (int j = 0; j < kLanes<T>; ++j) {
            a[j] *= scale * w_low[j];
            b[j] *= scale * w_high[j];
          }
          angles.template turn<false>(a, b);
          x[i].low = pack<T>(a);
          x[i].high = pack<T>(b);
        }
        x[i].store(HeadPlace<T>(job, row, head).out, half);
      }
    }
  }
}

/// Sums of the gradients of both weights over this thread's heads; nothing where they are frozen.
template <typename T, bool kWanted>
struct WeightSums {
  __device__ __forceinline__ void add(bool, int, float, float) {}
  __device__ __forceinline__ void store(float*, int) const {}
};

template <typename T>
struct WeightSums<T, true> {
  float q[2][kLanes<T>] = {}, k[2][kLanes<T>] = {};

  __device__ __forceinline__ void add(bool is_q, int lane, float low, float high) {
    q[0][lane] += is_q ? low : 0.0f;
    q[1][lane] += is_q ? high : 0.0f;
    k[0][lane] += is_q ? 0.0f : low;
    k[1][lane] += is_q ? 0.0f : high;
  }
  /// Adds the block's threads in order and writes [q | k], 2 * head_dim.
  __device__ __forceinline__ void store(float* partials, int head_dim) const {
    store_one(q, partials, head_dim);
    store_one(k, partials + head_dim, head_dim);
  }

 private:
  __device__ __forceinline__ static void store_one(const float (&sums)[2][kLanes<T>], float* out,
                                                   int head_dim) {
    __shared__ float shared[kBackwardThreads * 2 * kLanes<T>];
    const int groups = static_cast<int>(blockDim.y * blockDim.z);
    const int group = static_cast<int>(threadIdx.z * blockDim.y + threadIdx.y);
    float* mine = shared + group * head_dim + threadIdx.x * kLanes<T>;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kLanes<T>; ++j) {
      mine[j] = sums[0][j];
      mine[head_dim / 2 + j] = sums[1][j];
    }
    __syncthreads();
    for (int at = group * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x); at < head_dim;
         at += groups * static_cast<int>(blockDim.x)) {
      float total = 0.0f;
      for (int i = 0; i < groups; ++i) total += shared[i * head_dim + at];
      out[at] = total;
    }
  }
};

template <typename T, bool kWeight>
__global__ void __launch_bounds__(kBackwardThreads) backward_rows(RotaryRows job, HeadNormBackward given) {
  const int normed = job.q.heads + job.k.heads, total = normed + job.v.heads, half = job.head_dim / 2;
  const int side_by_side = static_cast<int>(blockDim.y);
  Weights<T> weights(given.norm, half);
  WeightSums<T, kWeight> sums;
  const unsigned mask = warp_mask();
  for (int64_t first = int64_t{blockIdx.x} * blockDim.z; first < job.rows;
       first += int64_t{gridDim.x} * blockDim.z) {
    const int64_t row = min(first + threadIdx.z, job.rows - 1);
    const int mine = first + threadIdx.z < job.rows ? total : 0;
    Angles<T> angles;
    angles.load(job, row);
    for (int base = 0; base < total; base += side_by_side * kHeads) {
      Halves<T> dy[kHeads], x[kHeads];
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        const int head = base + i * side_by_side + static_cast<int>(threadIdx.y);
        dy[i].clear();
        x[i].clear();
        if (head >= mine) continue;
        const HeadPlace<T> place(job, row, head);
        if (place.in != nullptr) dy[i].load(place.in, half);
        if (head >= normed) continue;
        const bool is_q = head < job.q.heads;
        const void* before = is_q ? given.q : given.k;
        const int local = is_q ? head : head - job.q.heads;
        x[i].load(static_cast<const T*>(before) + row * given.stride + int64_t{local} * job.head_dim, half);
      }
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        const int head = base + i * side_by_side + static_cast<int>(threadIdx.y);
        const bool is_q = head < job.q.heads, is_normed = head < normed && head < mine;
        const float scale = is_normed ? given.norm.scale[row * normed + head] : 0.0f;
        float g[kLanes<T>], h[kLanes<T>], a[kLanes<T>], b[kLanes<T>], w_low[kLanes<T>], w_high[kLanes<T>];
        angles.keep_packed();
        weights.keep_packed();
        dy[i].widen(g, h);
        x[i].widen(a, b);
        weights.of(is_q, w_low, w_high);
        angles.template turn<true>(g, h);
        float dot = 0.0f;
#pragma unroll
        for (int j = 0; j < kLanes<T>; ++j) {
          a[j] *= scale;
          b[j] *= scale;
          sums.add(is_q, j, g[j] * a[j], h[j] * b[j]);
          g[j] *= w_low[j];
          h[j] *= w_high[j];
          dot += g[j] * a[j] + h[j] * b[j];
        }
        const float mean = head_sum(dot, mask) / static_cast<float>(job.head_dim);
        if (head >= mine) continue;
        if (is_normed) {
#pragma unroll
          for (int j = 0; j < kLanes<T>; ++j) {
            g[j] = scale * (g[j] - a[j] * mean);
            h[j] = scale * (h[j] - b[j] * mean);
          }
          dy[i].low = pack<T>(g);
          dy[i].high = pack<T>(h);
        }
        dy[i].store(HeadPlace<T>(job, row, head).out, half);
      }
    }
  }
  if (kWeight) sums.store(given.partials + int64_t{blockIdx.x} * 2 * job.head_dim, job.head_dim);
}

template <typename T>
void forward(const RotaryRows& job, const HeadNorm& norm, Element element, cudaStream_t stream) {
  const dim3 block = rotary_block(job, element, kHeads, kForwardThreads);
  const unsigned grid = rotary_grid(forward_rows<T>, job, block);
  forward_rows<T><<<grid, block, 0, stream>>>(job, norm);
  check_launch("normed_rotary_forward");
}

template <typename T, bool kWeight>
void backward(const RotaryRows& job, const HeadNormBackward& norm, Element element, cudaStream_t stream) {
  const dim3 block = rotary_block(job, element, kHeads, kBackwardThreads);
  const unsigned grid = rotary_grid(backward_rows<T, kWeight>, job, block);
  backward_rows<T, kWeight><<<grid, block, 0, stream>>>(job, norm);
  check_launch("normed_rotary_backward");
}

template <typename T>
int64_t summing_blocks(const RotaryRows& job, Element element) {
  return rotary_grid(backward_rows<T, true>, job, rotary_block(job, element, kHeads, kBackwardThreads));
}

}  // namespace

void normed_rotary_forward(const RotaryRows& job, const HeadNorm& norm, Element element,
                           cudaStream_t stream) {
  if (element == Element::kBf16)
    forward<__nv_bfloat16>(job, norm, element, stream);
  else
    forward<float>(job, norm, element, stream);
}

int64_t normed_rotary_partials(const RotaryRows& job, Element element) {
  return element == Element::kBf16 ? summing_blocks<__nv_bfloat16>(job, element)
                                   : summing_blocks<float>(job, element);
}

void normed_rotary_backward(const RotaryRows& job, const HeadNormBackward& norm, Element element,
                            cudaStream_t stream) {
  const bool wanted = norm.partials != nullptr;
  if (element == Element::kBf16)
    wanted ? backward<__nv_bfloat16, true>(job, norm, element, stream)
           : backward<__nv_bfloat16, false>(job, norm, element, stream);
  else
    wanted ? backward<float, true>(job, norm, element, stream)
           : backward<float, false>(job, norm, element, stream);
}

}  // namespace apus::ops::kernels
