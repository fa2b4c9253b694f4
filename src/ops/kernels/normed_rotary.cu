// Rotary embedding behind norms of queries and keys, one pass each way, see rotary.cu. The threads of a head
// are neighbours in a warp and sum over it by shuffles. Forward writes 4 bytes a head for backward, which
// reads the heads before their norm again beside the gradients. Registers decide how many heads are under
// way: a thread has one, and 64 registers.
//
// The weights' gradients: a block then keeps to queries, to keys or to values, so that one weight and one set
// of sums lie in its registers until it is through with its rows; its heads are added in order, and the
// blocks by sum_partials.
#include <algorithm>
#include <cmath>

#include "ops/kernels/persistent_grid.h"
#include "ops/kernels/rotary.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks = 8;  // a multiprocessor
constexpr int kSummingThreads = 256;
constexpr int kSummingBlocks = 3;

/// Sum over the threads of a head, which are a power of two; all of a warp ask.
__device__ __forceinline__ float head_sum(float value) {
  for (unsigned offset = blockDim.x / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, static_cast<int>(offset));
  return value;
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks)
    forward_heads(RotaryRows job, HeadNorm norm, Divider heads, uint32_t count) {
  const uint32_t unit = blockIdx.x * blockDim.y + threadIdx.y;
  const bool exists = unit < count;
  const auto [row, index] = place_of(min(unit, count - 1), heads);
  const HeadPlace<T> place(job, row, static_cast<int>(index));
  const int half = job.head_dim / 2, normed = job.q.heads + job.k.heads;
  Halves<T> x, weight;
  Angles<T> angles;
  x.load(place.in, half);
  if (place.turns) {
    angles.load(job, row);
    const bool is_q = static_cast<int>(index) < job.q.heads;
    weight.load(static_cast<const T*>(is_q ? norm.q_weight : norm.k_weight), half);
    angles.keep_packed();  // all loads are on their way before the first use
    weight.keep_packed();
  }
  float a[kLanes<T>], b[kLanes<T>], squares = 0.0f;
  x.widen(a, b);
#pragma unroll
  for (int j = 0; j < kLanes<T>; ++j) squares += a[j] * a[j] + b[j] * b[j];
  const float scale = rsqrtf(head_sum(squares) / static_cast<float>(job.head_dim) + norm.eps);
  if (!exists) return;
  if (place.turns) {
    if (threadIdx.x == 0) norm.scale[int64_t{row} * normed + index] = scale;
    float w_low[kLanes<T>], w_high[kLanes<T>];
    x.keep_packed();
    x.widen(a, b);
    weight.widen(w_low, w_high);
#pragma unroll
    for (int j = 0; j < kLanes<T>; ++j) {
      a[j] *= scale * w_low[j];
      b[j] *= scale * w_high[j];
    }
    angles.template turn<false>(a, b);
    x.low = pack<T>(a);
    x.high = pack<T>(b);
  }
  x.store(place.out, half);
}

/// Sums of a weight's gradient over this thread's heads; nothing where it is frozen.
template <typename T, bool kWanted>
struct WeightSums {
  __device__ __forceinline__ void add(int, float, float) {}
};

template <typename T>
struct WeightSums<T, true> {
  float low[kLanes<T>] = {}, high[kLanes<T>] = {};

  __device__ __forceinline__ void add(int lane, float more_low, float more_high) {
    low[lane] += more_low;
    high[lane] += more_high;
  }
  /// Adds the block's heads in order and writes head_dim sums.
  __device__ __forceinline__ void store(float* out, int head_dim) const {
    __shared__ float shared[kSummingThreads * 2 * kLanes<T>];
    float* mine = shared + threadIdx.y * head_dim + threadIdx.x * kLanes<T>;
#pragma unroll
    for (int j = 0; j < kLanes<T>; ++j) {
      mine[j] = low[j];
      mine[head_dim / 2 + j] = high[j];
    }
    __syncthreads();
    for (int at = threadIdx.y * blockDim.x + threadIdx.x; at < head_dim; at += blockDim.x * blockDim.y) {
      float total = 0.0f;
      for (unsigned i = 0; i < blockDim.y; ++i) total += shared[i * head_dim + at];
      out[at] = total;
    }
  }
};

/// What backward reads of one head; zeros where there is nothing.
template <typename T>
struct HeadInputs {
  Halves<T> dy, x;
  float scale = 0.0f;

  __device__ __forceinline__ HeadInputs() {
    dy.clear();
    x.clear();
  }
  /// dy becomes the gradient before the norm. All of a warp call this.
  template <typename Sums>
  __device__ __forceinline__ void go_back(const Halves<T>& weight, const Angles<T>& angles, int head_dim,
                                          bool is_normed, Sums& sums) {
    float g[kLanes<T>], h[kLanes<T>], a[kLanes<T>], b[kLanes<T>], w_low[kLanes<T>], w_high[kLanes<T>];
    dy.widen(g, h);
    angles.template turn<true>(g, h);
    x.widen(a, b);
    weight.widen(w_low, w_high);
    float dot = 0.0f;
#pragma unroll
    for (int j = 0; j < kLanes<T>; ++j) {
      a[j] *= scale;
      b[j] *= scale;
      sums.add(j, g[j] * a[j], h[j] * b[j]);
      g[j] *= w_low[j];
      h[j] *= w_high[j];
      dot += g[j] * a[j] + h[j] * b[j];
    }
    const float mean = head_sum(dot) / static_cast<float>(head_dim);
    if (!is_normed) return;
    x.keep_packed();
    x.widen(a, b);
#pragma unroll
    for (int j = 0; j < kLanes<T>; ++j) {
      g[j] = scale * (g[j] - a[j] * scale * mean);
      h[j] = scale * (h[j] - b[j] * scale * mean);
    }
    dy.low = pack<T>(g);
    dy.high = pack<T>(h);
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks)
    backward_heads(RotaryRows job, HeadNormBackward given, Divider heads, uint32_t count) {
  const uint32_t unit = blockIdx.x * blockDim.y + threadIdx.y;
  const auto [row, index] = place_of(min(unit, count - 1), heads);
  const HeadPlace<T> place(job, row, static_cast<int>(index));
  const int half = job.head_dim / 2, normed = job.q.heads + job.k.heads;
  HeadInputs<T> in;
  Halves<T> weight;
  Angles<T> angles;
  weight.clear();
  angles.cos.clear();
  angles.sin.clear();
  if (place.in != nullptr) in.dy.load(place.in, half);
  if (place.turns) {
    const bool is_q = static_cast<int>(index) < job.q.heads;
    const int head = static_cast<int>(index) - (is_q ? 0 : job.q.heads);
    in.x.load(static_cast<const T*>(is_q ? given.q : given.k) + int64_t{row} * given.stride +
                  int64_t{head} * job.head_dim,
              half);
    in.scale = given.norm.scale[int64_t{row} * normed + index];
    angles.load(job, row);
    weight.load(static_cast<const T*>(is_q ? given.norm.q_weight : given.norm.k_weight), half);
  }
  WeightSums<T, false> none;
  in.go_back(weight, angles, job.head_dim, place.turns, none);
  if (unit < count) in.dy.store(place.out, half);
}

/// Blocks that keep to queries, keys and values, in this order.
struct Shares {
  int q, k, v;

  __host__ __device__ int all() const { return q + k + v; }
};

/// The heads of one kind that a block walks over: `at` of `blocks` blocks.
template <typename T>
struct Kind {
  HeadRows rows;
  const T* before;  // the heads before their norm
  int first_scale;  // of the kind's heads in a row of scales
  uint32_t at, blocks;
  Divider heads;

  __device__ __forceinline__ const T* in(uint32_t row, uint32_t head, int head_dim) const {
    return static_cast<const T*>(rows.in) + int64_t{row} * rows.in_stride + int64_t{head} * head_dim;
  }
  __device__ __forceinline__ T* out(uint32_t row, uint32_t head, int head_dim) const {
    return static_cast<T*>(rows.out) + int64_t{row} * rows.out_stride + int64_t{head} * head_dim;
  }
};

template <typename T>
__device__ __forceinline__ Kind<T> kind_of(const RotaryRows& job, const HeadNormBackward& given,
                                           const Shares& shares, const Divider& q_heads,
                                           const Divider& k_heads) {
  const auto block = static_cast<int>(blockIdx.x);
  if (block < shares.q)
    return {job.q, static_cast<const T*>(given.q), 0, blockIdx.x, static_cast<uint32_t>(shares.q), q_heads};
  if (block < shares.q + shares.k)
    return {job.k,
            static_cast<const T*>(given.k),
            job.q.heads,
            static_cast<uint32_t>(block - shares.q),
            static_cast<uint32_t>(shares.k),
            k_heads};
  return {
      job.v,  nullptr, 0, static_cast<uint32_t>(block - shares.q - shares.k), static_cast<uint32_t>(shares.v),
      k_heads};
}

/// Values have no norm: they move.
template <typename T>
__device__ __forceinline__ void move_heads(const RotaryRows& job, const Kind<T>& kind) {
  const uint32_t count = static_cast<uint32_t>(job.rows) * kind.rows.heads;
  for (uint32_t unit = kind.at * blockDim.y + threadIdx.y; unit < count; unit += kind.blocks * blockDim.y) {
    const auto [row, head] = place_of(unit, kind.heads);
    Halves<T> x;
    x.clear();
    if (kind.rows.in != nullptr) x.load(kind.in(row, head, job.head_dim), job.head_dim / 2);
    x.store(kind.out(row, head, job.head_dim), job.head_dim / 2);
  }
}

template <typename T>
__global__ void __launch_bounds__(kSummingThreads, kSummingBlocks)
    summing_backward(RotaryRows job, HeadNormBackward given, Shares shares, Divider q_heads,
                     Divider k_heads) {
  const Kind<T> kind = kind_of<T>(job, given, shares, q_heads, k_heads);
  if (kind.before == nullptr) {
    move_heads(job, kind);
    return;
  }
  const int half = job.head_dim / 2, normed = job.q.heads + job.k.heads;
  const bool is_q = kind.first_scale == 0;
  const uint32_t count = static_cast<uint32_t>(job.rows) * kind.rows.heads;
  Halves<T> weight;
  weight.load(static_cast<const T*>(is_q ? given.norm.q_weight : given.norm.k_weight), half);
  WeightSums<T, true> sums;
  // All threads of a block stay in this loop together: warps meet in head_sum.
  for (uint32_t first = kind.at * blockDim.y; first < count; first += kind.blocks * blockDim.y) {
    const uint32_t unit = first + threadIdx.y;
    const auto [row, head] = place_of(min(unit, count - 1), kind.heads);
    HeadInputs<T> in;
    Angles<T> angles;
    angles.load(job, row);
    if (unit < count) {
      if (kind.rows.in != nullptr) in.dy.load(kind.in(row, head, job.head_dim), half);
      in.x.load(kind.before + int64_t{row} * given.stride + int64_t{head} * job.head_dim, half);
      in.scale = given.norm.scale[int64_t{row} * normed + kind.first_scale + head];
    }
    weight.keep_packed();
    in.go_back(weight, angles, job.head_dim, true, sums);
    if (unit < count) in.dy.store(kind.out(row, head, job.head_dim), half);
  }
  float* partial = given.partials + int64_t{blockIdx.x} * 2 * job.head_dim;
  sums.store(partial + (is_q ? 0 : job.head_dim), job.head_dim);
  float* other = partial + (is_q ? job.head_dim : 0);
  for (int at = threadIdx.y * blockDim.x + threadIdx.x; at < job.head_dim; at += blockDim.x * blockDim.y)
    other[at] = 0.0f;
}

/// Resident blocks, dealt by the bytes that each kind moves; none has more than it has use for.
template <typename T>
Shares shares_of(const RotaryRows& job) {
  const auto all = static_cast<double>(resident_blocks(summing_backward<T>, kSummingThreads));
  const unsigned heads_a_block = heads_block<T>(job, kSummingThreads).y;
  const double weight = 3.0 * (job.q.heads + job.k.heads) + 2.0 * job.v.heads;
  const auto share = [&](const HeadRows& rows, double tensors) {
    const double most = std::ceil(static_cast<double>(job.rows) * rows.heads / heads_a_block);
    return static_cast<int>(std::clamp(std::floor(all * tensors * rows.heads / weight), 1.0, most));
  };
  return {share(job.q, 3.0), share(job.k, 3.0), share(job.v, 2.0)};
}

template <typename T>
void forward(const RotaryRows& job, const HeadNorm& norm, cudaStream_t stream) {
  const dim3 block = heads_block<T>(job, kThreads);
  const int64_t count = job.rows * heads_of(job);
  forward_heads<T><<<blocks_of(count, block.y), block, 0, stream>>>(
      job, norm, Divider(static_cast<uint32_t>(heads_of(job))), static_cast<uint32_t>(count));
  check_launch("normed_rotary_forward");
}

template <typename T>
void backward(const RotaryRows& job, const HeadNormBackward& given, cudaStream_t stream) {
  if (given.partials != nullptr) {
    const Shares shares = shares_of<T>(job);
    summing_backward<T>
        <<<static_cast<unsigned>(shares.all()), heads_block<T>(job, kSummingThreads), 0, stream>>>(
            job, given, shares, Divider(static_cast<uint32_t>(job.q.heads)),
            Divider(static_cast<uint32_t>(job.k.heads)));
    check_launch("normed_rotary_backward");
    return;
  }
  const dim3 block = heads_block<T>(job, kThreads);
  const int64_t count = job.rows * heads_of(job);
  backward_heads<T><<<blocks_of(count, block.y), block, 0, stream>>>(
      job, given, Divider(static_cast<uint32_t>(heads_of(job))), static_cast<uint32_t>(count));
  check_launch("normed_rotary_backward");
}

template <typename T>
int64_t summing_blocks(const RotaryRows& job) {
  const Shares shares = shares_of<T>(job);
  return shares.q + shares.k;
}

}  // namespace

void normed_rotary_forward(const RotaryRows& job, const HeadNorm& norm, Element element,
                           cudaStream_t stream) {
  if (element == Element::kBf16)
    forward<__nv_bfloat16>(job, norm, stream);
  else
    forward<float>(job, norm, stream);
}

int64_t normed_rotary_partials(const RotaryRows& job, Element element) {
  return element == Element::kBf16 ? summing_blocks<__nv_bfloat16>(job) : summing_blocks<float>(job);
}

void normed_rotary_backward(const RotaryRows& job, const HeadNormBackward& given, Element element,
                            cudaStream_t stream) {
  if (element == Element::kBf16)
    backward<__nv_bfloat16>(job, given, stream);
  else
    backward<float>(job, given, stream);
}

}  // namespace apus::ops::kernels
