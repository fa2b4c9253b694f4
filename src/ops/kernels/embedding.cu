// Token embedding. Forward copies rows of the table. Backward adds rows of dy that belong to one token, which
// a sort has brought together, without atomics: the sorted positions are cut into segments of 16, a block
// adds those of one segment in order, in registers, and writes a token's sum straight into the gradient if
// all of its rows lie in the segment. Tokens that cross a border leave partial sums, at most two a segment,
// which a second kernel adds in order. Reads dy once and touches the rows of the gradient that have tokens;
// memory bandwidth limits it.
#include "ops/kernels/embedding.h"

#include "ops/kernels/early_launch.cuh"
#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kSegment = static_cast<int>(kEmbeddingSegment);
// Rows in flight a thread.
constexpr int kAhead = 4;

template <typename T>
__global__ void __launch_bounds__(kThreads) gather_rows(EmbeddingForward job) {
  const int64_t vectors = job.columns / kLanes<T>, base = int64_t{blockIdx.x} * kAhead;
  wait_for_turn();
  float nothing[kLanes<T>];
#pragma unroll
  for (int j = 0; j < kLanes<T>; ++j) nothing[j] = __int_as_float(0x7fffffff);
  const T* from[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int64_t token = job.tokens[min(base + i, job.rows - 1)];
    const bool inside = token >= 0 && token < job.vocab;
    from[i] = inside ? static_cast<const T*>(job.table) + token * job.columns : nullptr;
  }
  for (int64_t at = threadIdx.x; at < vectors; at += kThreads) {
    uint4 raw[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      raw[i] = from[i] == nullptr ? pack<T>(nothing) : load_vector(from[i], at);
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (base + i < job.rows) store_vector(static_cast<T*>(job.out) + (base + i) * job.columns, at, raw[i]);
  }
}

/// What a row of the gradient holds in this thread's columns.
template <typename G, int kCount>
struct Old {
  uint4 raw[kCount / kLanes<G>] = {};

  __device__ __forceinline__ void load(const G* row, int64_t first) {
    const uint4* from = reinterpret_cast<const uint4*>(row + first);
#pragma unroll
    for (int i = 0; i < kCount / kLanes<G>; ++i) raw[i] = from[i];
  }
};

/// fp32 sums of this thread's columns, of which the first is a multiple of kCount.
template <int kCount>
struct Sums {
  float values[kCount] = {};

  __device__ __forceinline__ void add(const float (&more)[kCount]) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] += more[j];
  }
  /// row[first...] = old + the sums, and forgets them.
  template <typename G>
  __device__ __forceinline__ void add_to(const Old<G, kCount>& old, G* row, int64_t first) {
    uint4* to = reinterpret_cast<uint4*>(row + first);
#pragma unroll
    for (int i = 0; i < kCount / kLanes<G>; ++i) {
      float total[kLanes<G>];
      unpack<G>(old.raw[i], total);
#pragma unroll
      for (int j = 0; j < kLanes<G>; ++j) total[j] += values[i * kLanes<G> + j];
      to[i] = pack<G>(total);
    }
    *this = {};
  }
  /// row[first...] = the sums, and forgets them.
  __device__ __forceinline__ void leave_in(float* row, int64_t first) {
    float4* to = reinterpret_cast<float4*>(row + first);
#pragma unroll
    for (int j = 0; j < kCount; j += 4)
      to[j / 4] = make_float4(values[j], values[j + 1], values[j + 2], values[j + 3]);
    *this = {};
  }
  __device__ __forceinline__ void add_row(const float* row, int64_t first) {
    const float4* from = reinterpret_cast<const float4*>(row + first);
#pragma unroll
    for (int j = 0; j < kCount; j += 4) {
      const float4 more = from[j / 4];
      values[j] += more.x;
      values[j + 1] += more.y;
      values[j + 2] += more.z;
      values[j + 3] += more.w;
    }
  }
};

/// Where segment `index` begins and ends.
__device__ __forceinline__ int64_t segment_begin(int64_t index) {
  return index * kSegment;
}
__device__ __forceinline__ int64_t segment_end(const EmbeddingBackward& job, int64_t index) {
  return min(segment_begin(index) + kSegment, job.rows);
}
__device__ __forceinline__ bool is_inside(const EmbeddingBackward& job, int64_t token) {
  return token >= 0 && token < job.vocab;
}

/// What becomes of the sum after a position: it goes on, is complete, or is a part that another segment
/// continues.
enum class Fate { kGoesOn, kComplete, kPartOfBefore, kPartOfAfter, kDropped };

/// The sorted tokens of a block's segment, and whether its first and last run cross a border.
struct Segment {
  int32_t tokens[kSegment];
  int64_t positions[kSegment];
  int count;
  bool goes_on_from, goes_on_after;

  __device__ __forceinline__ void load(const EmbeddingBackward& job, int64_t index) {
    const int64_t begin = segment_begin(index), end = segment_end(job, index);
    if (threadIdx.x == 0) {
      count = static_cast<int>(end - begin);
      goes_on_from = begin > 0 && job.tokens[begin - 1] == job.tokens[begin];
      goes_on_after = end < job.rows && job.tokens[end] == job.tokens[end - 1];
    }
    if (begin + threadIdx.x < end) {
      tokens[threadIdx.x] = job.tokens[begin + threadIdx.x];
      positions[threadIdx.x] = job.positions[begin + threadIdx.x];
    }
    __syncthreads();
  }
  __device__ __forceinline__ Fate fate(const EmbeddingBackward& job, int at) const {
    const bool is_last = at + 1 == count;
    if (!is_last && tokens[at + 1] == tokens[at]) return Fate::kGoesOn;
    if (goes_on_from && tokens[at] == tokens[0]) return Fate::kPartOfBefore;
    if (is_last && goes_on_after) return Fate::kPartOfAfter;
    return is_inside(job, tokens[at]) ? Fate::kComplete : Fate::kDropped;
  }
};

// Eight blocks a multiprocessor are all segments of 16k tokens at once.
template <typename T, typename G>
__global__ void __launch_bounds__(kThreads, 8) add_segments(EmbeddingBackward job) {
  __shared__ Segment segment;
  wait_for_turn();
  segment.load(job, blockIdx.x);
  const int64_t vector = int64_t{blockIdx.y} * kThreads + threadIdx.x, first = vector * kLanes<T>;
  if (first >= job.columns) return;
  float* parts = job.partials + 2 * int64_t{blockIdx.x} * job.columns;
  Sums<kLanes<T>> sums;
  for (int base = 0; base < segment.count; base += kAhead) {
    uint4 raw[kAhead];
    Old<G, kLanes<T>> old[kAhead];
    // All loads of some positions, those of rows that their sums are added to included, travel together.
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = base + i;
      if (at >= segment.count) break;
      raw[i] = load_vector(static_cast<const T*>(job.dy) + segment.positions[at] * job.dy_stride, vector);
      if (!job.is_fresh && segment.fate(job, at) == Fate::kComplete)
        old[i].load(static_cast<const G*>(job.grad) + segment.tokens[at] * job.columns, first);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = base + i;
      if (at >= segment.count) break;
      float values[kLanes<T>];
      unpack<T>(raw[i], values);
      sums.add(values);
      const Fate fate = segment.fate(job, at);
      if (fate == Fate::kComplete)
        sums.add_to(old[i], static_cast<G*>(job.grad) + segment.tokens[at] * job.columns, first);
      else if (fate == Fate::kPartOfBefore || fate == Fate::kPartOfAfter)
        sums.leave_in(parts + (fate == Fate::kPartOfBefore ? 0 : job.columns), first);
      else if (fate == Fate::kDropped)
        sums = {};
    }
  }
}

template <typename G>
__global__ void __launch_bounds__(kThreads) join_segments(EmbeddingBackward job) {
  constexpr int kCount = kLanes<G>;
  wait_for_turn();
  int64_t segment = blockIdx.x;
  const int64_t begin = segment_begin(segment), end = segment_end(job, segment);
  const int64_t first = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kCount;
  if (end >= job.rows || first >= job.columns) return;
  const int64_t token = job.tokens[end - 1];
  const bool starts_here = begin == 0 || job.tokens[begin - 1] != token;
  if (job.tokens[end] != token || !starts_here || !is_inside(job, token)) return;
  Sums<kCount> sums;
  sums.add_row(job.partials + (2 * segment + 1) * job.columns, first);
  // How far the run goes is read for some segments at a time: a frequent token has many.
  int more = kAhead;
  while (more == kAhead) {
    int64_t next[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = segment_end(job, segment + 1 + i);
      next[i] = at < job.rows ? job.tokens[at] : -1;
    }
    more = 1;
#pragma unroll
    for (int i = 0; i + 1 < kAhead; ++i)
      if (more == i + 1 && next[i] == token) ++more;
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (i < more) sums.add_row(job.partials + 2 * (segment + 1 + i) * job.columns, first);
    segment += more;
    if (next[kAhead - 1] != token) break;
  }
  G* row = static_cast<G*>(job.grad) + token * job.columns;
  Old<G, kCount> old;
  if (!job.is_fresh) old.load(row, first);
  sums.add_to(old, row, first);
}

unsigned blocks_across(int64_t columns, int64_t a_thread) {
  return static_cast<unsigned>((columns + a_thread * kThreads - 1) / (a_thread * kThreads));
}

template <typename T>
void gather(const EmbeddingForward& job, cudaStream_t stream) {
  const int64_t grid = (job.rows + kAhead - 1) / kAhead;
  launch_early(gather_rows<T>, {static_cast<unsigned>(grid), kThreads, stream}, job);
  check_launch("embedding_forward");
}

template <typename T, typename G>
void add(const EmbeddingBackward& job, cudaStream_t stream) {
  const int64_t segments = (job.rows + kSegment - 1) / kSegment;
  const dim3 grid(static_cast<unsigned>(segments), blocks_across(job.columns, kLanes<T>));
  launch_early(add_segments<T, G>, {grid, kThreads, stream}, job);
  check_launch("embedding_backward");
  const dim3 joins(static_cast<unsigned>(segments), blocks_across(job.columns, kLanes<G>));
  launch_early(join_segments<G>, {joins, kThreads, stream}, job);
  check_launch("embedding_backward (joins)");
}

}  // namespace

void embedding_forward(const EmbeddingForward& job, Element element, cudaStream_t stream) {
  if (element == Element::kBf16)
    gather<__nv_bfloat16>(job, stream);
  else
    gather<float>(job, stream);
}

void embedding_backward(const EmbeddingBackward& job, Element element, Element grad_element,
                        cudaStream_t stream) {
  if (element == Element::kFp32)
    add<float, float>(job, stream);
  else if (grad_element == Element::kFp32)
    add<__nv_bfloat16, float>(job, stream);
  else
    add<__nv_bfloat16, __nv_bfloat16>(job, stream);
}

}  // namespace apus::ops::kernels
