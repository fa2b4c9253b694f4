// The loss head between its products. A row of logits (152k columns: 304 KB in bf16) becomes its target's
// log-probability and, in place, its gradient (column == target) - softmax. Fused: maximum and sum of
// exponentials in one pass (the running sum is rescaled when the maximum grows), argmax, the gradient.
//
// With a gradient a row is read once and written once: a multiprocessor holds it between the two passes, 6
// vectors of 16 bytes a thread in registers and the others in shared memory (a row is 19 vectors for each of
// 1,024 threads), so one block of 1,024 threads a multiprocessor, persistent over rows. Columns that fit
// neither are read again. As the second pass empties a place it asks for the same place of the next row
// (plain loads into registers, cp.async into shared memory), so reads and writes overlap and the only bubble
// is one reduction a row. Every thread reads what it asked for itself: no barrier but that reduction's.
//
// Without one nothing has to be held: blocks of 256 threads take a row each, several at once, which reads 12
// percent faster. A thread keeps the sums of the four threads that would have had its columns with a
// gradient: log-probabilities have the same bits either way.
//
// Limit: memory, 4 bytes a bf16 logit, or 2. Exponentials (two a logit) take about 60 percent of that time.
#include "ops/kernels/log_probs.h"

#include <algorithm>

#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kRegisterVectors = 6;
constexpr int kParts = 4;  // of what a thread has in shared memory: it waits for a part at a time
constexpr int kThreads = 1024;
constexpr int kFewThreads = 256;
constexpr int kFewVectors = 2048;  // rows that kFewThreads hold in 8 turns
constexpr float kLeast = -1e38F;   // below any logit, and finite times log2(e)
constexpr float kLog2E = 1.44269504088896341F;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// exp(x - shift), as exactly as logits of type T deserve it.
template <typename T>
__device__ __forceinline__ float shifted_exp(float x, float shift) {
  if constexpr (sizeof(T) == 4) {
    return expf(x - shift);
  } else {
    return exp2_fast(fmaf(x, kLog2E, -shift * kLog2E));
  }
}

/// What some columns of a row have in common: their maximum, the first vector that has it, and the sum of
/// exp(x - maximum).
struct Summary {
  float maximum = kLeast;
  float sum = 0.0F;
  int vector = 0x7fffffff;
};

/// exp(x - maximum) for a maximum that may be kLeast itself, of a thread without columns: the difference
/// comes first, as a fused multiply-add of so large numbers would leave their rounding, which is no exponent.
template <typename T>
__device__ __forceinline__ float rescaling(float x, float maximum) {
  return sizeof(T) == 4 ? expf(x - maximum) : exp2_fast((x - maximum) * kLog2E);
}

/// The same bits whichever comes first.
template <typename T>
__device__ __forceinline__ Summary merged(const Summary& a, const Summary& b) {
  Summary all;
  all.maximum = fmaxf(a.maximum, b.maximum);
  all.sum = __fadd_rn(__fmul_rn(a.sum, rescaling<T>(a.maximum, all.maximum)),
                      __fmul_rn(b.sum, rescaling<T>(b.maximum, all.maximum)));
  all.vector = a.maximum > b.maximum ? a.vector : b.maximum > a.maximum ? b.vector : min(a.vector, b.vector);
  return all;
}

template <typename T>
__device__ __forceinline__ Summary merged_over_warp(Summary mine) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    Summary other;
    other.maximum = __shfl_xor_sync(0xffffffffU, mine.maximum, lanes);
    other.sum = __shfl_xor_sync(0xffffffffU, mine.sum, lanes);
    other.vector = __shfl_xor_sync(0xffffffffU, mine.vector, lanes);
    mine = merged<T>(mine, other);
  }
  return mine;
}

/// Takes a vector of a row's logits in.
template <typename T>
__device__ __forceinline__ void absorb(const uint4& raw, int vector, Summary& row) {
  constexpr int kWidth = kLanes<T>;
  float x[kWidth];
  unpack<T>(raw, x);
  float top = x[0];
#pragma unroll
  for (int i = 1; i < kWidth; ++i) top = fmaxf(top, x[i]);
  const float maximum = fmaxf(row.maximum, top);
  row.sum *= rescaling<T>(row.maximum, maximum);
  row.vector = top > row.maximum ? vector : row.vector;
  row.maximum = maximum;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) row.sum += shifted_exp<T>(x[i], maximum);
}

/// The first column of a vector that has this value.
template <typename T>
__device__ __forceinline__ int first_column(const uint4& raw, int column, float value) {
  constexpr int kWidth = kLanes<T>;
  float x[kWidth];
  unpack<T>(raw, x);
  int first = 0;
#pragma unroll
  for (int i = kWidth - 1; i >= 0; --i) first = x[i] == value ? i : first;
  return column + first;
}

/// scale * ((column == target) - exp(x - logsumexp)) for a vector.
template <typename T>
__device__ __forceinline__ uint4 gradient_of(const uint4& raw, int column, int target, float logsumexp,
                                             float scale) {
  constexpr int kWidth = kLanes<T>;
  float x[kWidth];
  unpack<T>(raw, x);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) x[i] = shifted_exp<T>(x[i], logsumexp) * -scale;
  const int at = target - column;
  if (at >= 0 && at < kWidth) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (i == at) x[i] += scale;
    }
  }
  return pack<T>(x);
}

__device__ __forceinline__ void copy_async(uint4* to, const uint4* from) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

__device__ __forceinline__ void end_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most so many of this thread's newest groups of copies are under way.
__device__ __forceinline__ void wait_for_all_but(int groups) {
  if (groups == 0) asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (groups == 1) asm volatile("cp.async.wait_group 1;" ::: "memory");
  if (groups == 2) asm volatile("cp.async.wait_group 2;" ::: "memory");
  if (groups == 3) asm volatile("cp.async.wait_group 3;" ::: "memory");
}

/// One block's place in a row: which vectors its threads hold where.
template <typename T>
struct RowVectors {
  int vectors;    // of a row
  int held;       // vectors a thread keeps in shared memory
  uint4* shared;  // [held][threads], this thread's first
  int first;      // this thread's first vector
  int step;       // threads

  __device__ __forceinline__ int vector(int turn) const { return turn * step + first; }
  __device__ __forceinline__ int column(int vector) const { return vector * kLanes<T>; }
  /// Slots in shared memory come in parts, each a group of copies: part p has [slot(p), slot(p + 1)).
  __device__ __forceinline__ int slot(int part) const { return held * part / kParts; }
};

template <typename T>
__global__ void __launch_bounds__(kThreads, 1) gradient_rows(LogProbRows all, int vectors, int held) {
  extern __shared__ uint4 held_vectors[];
  __shared__ Summary partial[2][kThreads / 32];
  const RowVectors<T> at{vectors, held, held_vectors + threadIdx.x, static_cast<int>(threadIdx.x),
                         static_cast<int>(blockDim.x)};
  const auto vectors_of = [&](int64_t row) {
    return reinterpret_cast<uint4*>(static_cast<T*>(all.logits) + row * all.stride);
  };
  uint4 kept[kRegisterVectors] = {};
  int64_t row = blockIdx.x;
  if (row < all.rows) {
    const uint4* const x = vectors_of(row);
#pragma unroll
    for (int turn = 0; turn < kRegisterVectors; ++turn) {
      if (at.vector(turn) < vectors) kept[turn] = x[at.vector(turn)];
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      for (int slot = at.slot(part); slot < at.slot(part + 1); ++slot) {
        const int v = at.vector(kRegisterVectors + slot);
        if (v < vectors) copy_async(at.shared + slot * at.step, x + v);
      }
      end_group();
    }
  }
  for (int parity = 0; row < all.rows; row += gridDim.x, parity ^= 1) {
    uint4* const x = vectors_of(row);
    const int64_t wanted = all.targets[row];
    const bool exists = wanted >= 0 && wanted < all.vocab;
    const int target = exists ? static_cast<int>(wanted) : -1;
    float target_logit = NAN;
    if (threadIdx.x == 0 && exists) target_logit = widen(reinterpret_cast<const T*>(x)[target]);
    const bool has_next = row + gridDim.x < all.rows;
    const uint4* const next = has_next ? vectors_of(row + gridDim.x) : x;

    Summary mine;
#pragma unroll
    for (int turn = 0; turn < kRegisterVectors; ++turn) {
      const int v = at.vector(turn);
      if (v < vectors) absorb<T>(kept[turn], v, mine);
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      wait_for_all_but(kParts - 1 - part);  // newer than this part's: those of the parts behind it
      for (int slot = at.slot(part); slot < at.slot(part + 1); ++slot) {
        const int v = at.vector(kRegisterVectors + slot);
        if (v < vectors) absorb<T>(at.shared[slot * at.step], v, mine);
      }
    }
    for (int v = at.vector(kRegisterVectors + held); v < vectors; v += at.step) absorb<T>(x[v], v, mine);

    mine = merged_over_warp<T>(mine);
    if (threadIdx.x % 32 == 0) partial[parity][threadIdx.x / 32] = mine;
    __syncthreads();  // the other parity's partials are free again: all have passed this row's barrier
    const int lane = static_cast<int>(threadIdx.x % 32);
    const Summary whole = merged_over_warp<T>(lane < at.step / 32 ? partial[parity][lane] : Summary{});
    const float logsumexp = whole.maximum + logf(whole.sum);
    if (threadIdx.x == 0) {
      if (all.log_probs != nullptr) all.log_probs[row] = target_logit - logsumexp;
    }
    if (all.is_argmax != nullptr) {
      // Its owner alone overwrites the vector, below.
      const bool has_top = whole.vector < vectors;
      if (threadIdx.x == (has_top ? whole.vector % at.step : 0)) {
        all.is_argmax[row] =
            exists && has_top &&
            first_column<T>(x[whole.vector], at.column(whole.vector), whole.maximum) == target;
      }
    }
    const float scale = !exists ? NAN : all.scale != nullptr ? all.scale[row] : 1.0F;
#pragma unroll
    for (int turn = 0; turn < kRegisterVectors; ++turn) {
      const int v = at.vector(turn);
      if (v < vectors) {
        x[v] = gradient_of<T>(kept[turn], at.column(v), target, logsumexp, scale);
        if (has_next) kept[turn] = next[v];
      }
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      for (int slot = at.slot(part); slot < at.slot(part + 1); ++slot) {
        const int v = at.vector(kRegisterVectors + slot);
        if (v < vectors) {
          x[v] = gradient_of<T>(at.shared[slot * at.step], at.column(v), target, logsumexp, scale);
          if (has_next) copy_async(at.shared + slot * at.step, next + v);
        }
      }
      end_group();
    }
    for (int v = at.vector(kRegisterVectors + held); v < vectors; v += at.step)
      x[v] = gradient_of<T>(x[v], at.column(v), target, logsumexp, scale);
  }
}

/// Log-probabilities alone: a block takes a row; a thread does what kEach of gradient_rows' threads would.
template <typename T, int kEach>
__global__ void __launch_bounds__(kFewThreads) value_rows(LogProbRows all, int vectors) {
  constexpr int kWarps = kFewThreads / 32;
  __shared__ Summary partial[kWarps * kEach];
  const int64_t row = blockIdx.x;
  const T* const logits = static_cast<const T*>(all.logits) + row * all.stride;
  const int64_t wanted = all.targets[row];
  const bool exists = wanted >= 0 && wanted < all.vocab;
  float target_logit = NAN;
  if (threadIdx.x == 0 && exists) target_logit = widen(logits[wanted]);

  Summary mine[kEach];
  for (int first = static_cast<int>(threadIdx.x); first < vectors; first += kEach * kFewThreads) {
    uint4 raw[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int v = first + i * kFewThreads;
      if (v < vectors) raw[i] = load_vector(logits, v);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int v = first + i * kFewThreads;
      if (v < vectors) absorb<T>(raw[i], v, mine[i]);
    }
  }
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    mine[i] = merged_over_warp<T>(mine[i]);
    if (lane == 0) partial[i * kWarps + warp] = mine[i];
  }
  __syncthreads();
  if (warp != 0) return;
  const Summary whole = merged_over_warp<T>(lane < kWarps * kEach ? partial[lane] : Summary{});
  if (lane != 0) return;
  if (all.log_probs != nullptr) all.log_probs[row] = target_logit - (whole.maximum + logf(whole.sum));
  if (all.is_argmax != nullptr) {
    all.is_argmax[row] = exists && whole.vector < vectors &&
                         first_column<T>(load_vector(logits, whole.vector), whole.vector * kLanes<T>,
                                         whole.maximum) == static_cast<int>(wanted);
  }
}

template <typename T>
void launch_values(const LogProbRows& rows, int vectors, cudaStream_t stream) {
  const auto kernel = vectors > kFewVectors ? value_rows<T, kThreads / kFewThreads> : value_rows<T, 1>;
  kernel<<<static_cast<unsigned>(rows.rows), kFewThreads, 0, stream>>>(rows, vectors);
  check_launch("log_prob_rows (values)");
}

template <typename T>
void launch_gradient(const LogProbRows& rows, int vectors, cudaStream_t stream) {
  int device = 0, multiprocessors = 0, shared_limit = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&shared_limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  const int threads = vectors > kFewVectors ? kThreads : kFewThreads;
  const int turns = (vectors + threads - 1) / threads;
  constexpr int kOwnShared = 2 * static_cast<int>(sizeof(Summary)) * (kThreads / 32);
  const int room = (shared_limit - kOwnShared) / (threads * static_cast<int>(sizeof(uint4)));
  const int held = std::clamp(turns - kRegisterVectors, 0, room);
  const int shared = held * threads * static_cast<int>(sizeof(uint4));
  cudaFuncSetAttribute(gradient_rows<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  const int64_t blocks = std::min<int64_t>(rows.rows, multiprocessors * (kThreads / threads));
  gradient_rows<T><<<static_cast<unsigned>(blocks), threads, shared, stream>>>(rows, vectors, held);
  check_launch("log_prob_rows (gradient)");
}

template <typename T>
void launch(const LogProbRows& rows, cudaStream_t stream) {
  constexpr int kWidth = kLanes<T>;
  const int vectors = static_cast<int>((rows.vocab + kWidth - 1) / kWidth);
  const int64_t behind = int64_t{vectors} * kWidth - rows.vocab;
  if (behind > 0) {  // of a row's last vector: far below any logit, in either type
    constexpr int kFarBelow = 0xfe;
    cudaMemset2DAsync(static_cast<T*>(rows.logits) + rows.vocab, rows.stride * sizeof(T), kFarBelow,
                      behind * sizeof(T), rows.rows, stream);
  }
  if (rows.makes_gradient)
    launch_gradient<T>(rows, vectors, stream);
  else
    launch_values<T>(rows, vectors, stream);
}

}  // namespace

void launch_log_prob_rows(const LogProbRows& rows, cudaStream_t stream) {
  if (rows.rows == 0) return;
  if (rows.element == Element::kBf16)
    launch<__nv_bfloat16>(rows, stream);
  else
    launch<float>(rows, stream);
}

}  // namespace apus::ops::kernels
