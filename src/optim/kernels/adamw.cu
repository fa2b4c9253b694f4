// AdamW over one flat shard in one pass.
//
// Fused: clipping, both moments, decay, the step, and the bf16 copy that the next forward reads. An element
// of fp32 states reads 16 bytes (12 + 2 with a bf16 gradient) and writes 12 (+ 2 for the copy): memory
// bandwidth is the limit, so a thread takes as many neighbours as 16 bytes hold and loads all its arrays
// before it looks at anything else: the search for its segment, and the flag that may forbid the write, hide
// behind those loads.
//
// Padding between segments is loaded and not written. No contraction (__fmul_rn and the like), division and
// square root round correctly: the bits are those of adamw_kernel.cpp.
//
// bf16 states: 8 neighbours a thread, widened, updated in fp32 and rounded stochastically. One Philox block
// gives eight times 16 bits, so three blocks a thread serve the three arrays.
#include "optim/kernels/adamw.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "apus/base/philox.h"

namespace apus::optim::kernels {
namespace {

using detail::AdamwRow;
using detail::RoundedArray;

constexpr int kThreads = 256;

struct Coefficients {
  float clip;
  float decay;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float minus_step_size;
  float correction2_sqrt;
  float epsilon;
};

/// What all elements of a launch share.
struct Common {
  const AdamwRow* rows;
  const float2* coefficients;
  int segments;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float epsilon;
  const int64_t* step;
  int64_t host_step;
  const float* clip_factor;
  const float* found_inf;
};

__device__ __forceinline__ void update(float& p, float& m, float& v, float grad, const Coefficients& c) {
  const float g = __fmul_rn(grad, c.clip);
  m = __fadd_rn(m, __fmul_rn(c.one_minus_beta1, __fsub_rn(g, m)));
  v = __fadd_rn(__fmul_rn(v, c.beta2), __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), c.correction2_sqrt), c.epsilon);
  p = __fadd_rn(__fmul_rn(p, c.decay), __fdiv_rn(__fmul_rn(c.minus_step_size, m), denominator));
}

/// The last segment that begins at or before `element`, or -1.
__device__ __forceinline__ int segment_of(const Common& common, int64_t element) {
  int low = -1, high = common.segments;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (common.rows[middle].begin <= element) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ __forceinline__ Coefficients coefficients_of(const Common& common, int segment) {
  const float2 own = common.coefficients[segment];
  return {common.clip_factor ? *common.clip_factor : 1.0f,
          own.x,
          common.one_minus_beta1,
          common.beta2,
          common.one_minus_beta2,
          own.y,
          common.coefficients[common.segments].x,
          common.epsilon};
}

/// N neighbours of one array, moved with the widest accesses that N allows.
template <typename T, int N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load(const T* from) {
  Pack<T, N> pack;
  if constexpr (sizeof(pack) % 16 == 0) {
#pragma unroll
    for (int part = 0; part < static_cast<int>(sizeof(pack) / 16); ++part) {
      reinterpret_cast<uint4*>(&pack)[part] = __ldcs(reinterpret_cast<const uint4*>(from) + part);
    }
  } else if constexpr (sizeof(pack) == 8) {
    *reinterpret_cast<uint2*>(&pack) = __ldcs(reinterpret_cast<const uint2*>(from));
  } else {
    static_assert(N == 1);
    pack.at[0] = *from;
  }
  return pack;
}

template <typename T, int N>
__device__ __forceinline__ void store(T* to, const Pack<T, N>& pack) {
  if constexpr (sizeof(pack) % 16 == 0) {
#pragma unroll
    for (int part = 0; part < static_cast<int>(sizeof(pack) / 16); ++part) {
      __stcs(reinterpret_cast<uint4*>(to) + part, reinterpret_cast<const uint4*>(&pack)[part]);
    }
  } else if constexpr (sizeof(pack) == 8) {
    __stcs(reinterpret_cast<uint2*>(to), *reinterpret_cast<const uint2*>(&pack));
  } else {
    static_assert(N == 1);
    *to = pack.at[0];
  }
}

__device__ __forceinline__ float widen(float value) {
  return value;
}
__device__ __forceinline__ float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ __forceinline__ void narrow(float value, float& to) {
  to = value;
}
__device__ __forceinline__ void narrow(float value, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(value);
}

/// fp32 states; `copy` is null where the master is the parameter.
template <typename Grad, typename Copy, int N>
__global__ void __launch_bounds__(kThreads)
    adamw_fp32(float* __restrict__ master, float* __restrict__ exp_avg, float* __restrict__ exp_avg_sq,
               const Grad* __restrict__ grad, Copy* __restrict__ copy, int64_t elements, Common common) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (first >= elements) return;
  // N > 1 only where it divides the elements.
  Pack<float, N> p = load<float, N>(master + first), m = load<float, N>(exp_avg + first),
                 v = load<float, N>(exp_avg_sq + first);
  const Pack<Grad, N> g = load<Grad, N>(grad + first);
  int segment = segment_of(common, first);
  if (common.found_inf && *common.found_inf != 0.0f) return;
  const bool whole = segment >= 0 && first + N <= common.rows[segment].end;
  if (whole) {
    const Coefficients c = coefficients_of(common, segment);
    Pack<Copy, N> rounded;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      update(p.at[i], m.at[i], v.at[i], widen(g.at[i]), c);
      narrow(p.at[i], rounded.at[i]);
    }
    store<float, N>(master + first, p);
    store<float, N>(exp_avg + first, m);
    store<float, N>(exp_avg_sq + first, v);
    if (copy) store<Copy, N>(copy + first, rounded);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {  // borders and padding: each element finds its own segment
    const int64_t element = first + i;
    segment = segment_of(common, element);
    if (segment < 0 || element >= common.rows[segment].end) continue;
    update(p.at[i], m.at[i], v.at[i], widen(g.at[i]), coefficients_of(common, segment));
    master[element] = p.at[i];
    exp_avg[element] = m.at[i];
    exp_avg_sq[element] = v.at[i];
    if (copy) narrow(p.at[i], copy[element]);
  }
}

/// Rounds up where the random bits carry into the kept ones; NaN as c10::BFloat16 writes it.
__device__ __forceinline__ uint16_t round_stochastically(float value, uint32_t random) {
  const uint32_t bits = __float_as_uint(value);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return static_cast<uint16_t>(is_nan ? 0x7FC0u : (bits + random) >> 16);
}

__device__ __forceinline__ float widen_bits(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

__device__ __forceinline__ PhiloxBlock random_block(uint64_t key, uint64_t group, uint32_t step,
                                                    RoundedArray array) {
  return philox4x32({{static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), step,
                      static_cast<uint32_t>(array)}},
                    key);
}

/// bf16 states, eight elements a thread.
template <typename Grad, int N>
__global__ void __launch_bounds__(kThreads)
    adamw_bf16(uint16_t* __restrict__ master, uint16_t* __restrict__ exp_avg,
               uint16_t* __restrict__ exp_avg_sq, const Grad* __restrict__ grad, int64_t elements,
               Common common) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (first >= elements) return;
  Pack<uint16_t, N> p = load<uint16_t, N>(master + first), m = load<uint16_t, N>(exp_avg + first),
                    v = load<uint16_t, N>(exp_avg_sq + first);
  const Pack<Grad, N> g = load<Grad, N>(grad + first);
  int segment = segment_of(common, first);
  if (common.found_inf && *common.found_inf != 0.0f) return;
  const auto step = static_cast<uint32_t>(common.step ? *common.step : common.host_step);
  constexpr RoundedArray kArrays[3] = {RoundedArray::kMaster, RoundedArray::kExpAvg, RoundedArray::kExpAvgSq};

  uint64_t place = 0;  // of the first element in its parameter
  if (segment >= 0) place = common.rows[segment].first_element + (first - common.rows[segment].begin);
  if (N == detail::kRoundingGroup && segment >= 0 && first + N <= common.rows[segment].end &&
      place % N == 0) {
    const Coefficients c = coefficients_of(common, segment);
    const uint64_t key = common.rows[segment].rounding_key;
    const PhiloxBlock random[3] = {random_block(key, place / N, step, kArrays[0]),
                                   random_block(key, place / N, step, kArrays[1]),
                                   random_block(key, place / N, step, kArrays[2])};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float values[3] = {widen_bits(p.at[i]), widen_bits(m.at[i]), widen_bits(v.at[i])};
      update(values[0], values[1], values[2], widen(g.at[i]), c);
      const int word = i / 2 % 4, shift = i % 2 * 16;
      p.at[i] = round_stochastically(values[0], random[0].w[word] >> shift & 0xFFFFu);
      m.at[i] = round_stochastically(values[1], random[1].w[word] >> shift & 0xFFFFu);
      v.at[i] = round_stochastically(values[2], random[2].w[word] >> shift & 0xFFFFu);
    }
    store<uint16_t, N>(master + first, p);
    store<uint16_t, N>(exp_avg + first, m);
    store<uint16_t, N>(exp_avg_sq + first, v);
    return;
  }
  for (int i = 0; i < N; ++i) {
    const int64_t element = first + i;
    segment = segment_of(common, element);
    if (segment < 0 || element >= common.rows[segment].end) continue;
    const AdamwRow row = common.rows[segment];
    const auto own = static_cast<uint64_t>(row.first_element + (element - row.begin));
    float values[3] = {widen_bits(master[element]), widen_bits(exp_avg[element]),
                       widen_bits(exp_avg_sq[element])};
    update(values[0], values[1], values[2], widen(grad[element]), coefficients_of(common, segment));
    uint16_t* const targets[3] = {master, exp_avg, exp_avg_sq};
    for (int array = 0; array < 3; ++array) {
      const PhiloxBlock random =
          random_block(row.rounding_key, own / detail::kRoundingGroup, step, kArrays[array]);
      const auto lane = static_cast<uint32_t>(own % detail::kRoundingGroup);
      targets[array][element] =
          round_stochastically(values[array], random.w[lane / 2] >> (lane % 2 * 16) & 0xFFFFu);
    }
  }
}

/// One block: each thread some segments, the numbers that all share in the last place.
__global__ void adamw_coefficients(const AdamwRow* rows, int segments, AdamwNumbers numbers,
                                   float2* coefficients) {
  double correction1 = numbers.correction1, correction2_sqrt = numbers.correction2_sqrt;
  if (numbers.step) {
    const auto step = static_cast<double>(*numbers.step);
    correction1 = __dsub_rn(1.0, pow(numbers.beta1, step));
    correction2_sqrt = __dsqrt_rn(__dsub_rn(1.0, pow(numbers.beta2, step)));
  }
  for (int segment = threadIdx.x; segment < segments; segment += blockDim.x) {
    const AdamwRow& row = rows[segment];
    const double lr = __dmul_rn(numbers.lr, row.lr_scale);
    const double decay = __dsub_rn(1.0, __dmul_rn(lr, __dmul_rn(numbers.decay, row.weight_decay)));
    coefficients[segment] = {static_cast<float>(decay), static_cast<float>(__ddiv_rn(-lr, correction1))};
  }
  if (threadIdx.x == 0) coefficients[segments] = {static_cast<float>(correction2_sqrt), 0.0f};
}

bool is_aligned(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

/// Whether every array can be moved 16 bytes at a time, `width` elements a thread.
bool takes_packs(const AdamwPointers& arrays, int64_t width) {
  bool aligned = arrays.elements % width == 0;
  for (const void* pointer :
       {static_cast<const void*>(arrays.master), static_cast<const void*>(arrays.exp_avg),
        static_cast<const void*>(arrays.exp_avg_sq), arrays.grad,
        static_cast<const void*>(arrays.compute_copy)}) {
    aligned = aligned && is_aligned(pointer, 16);
  }
  return aligned;
}

unsigned blocks_for(int64_t elements, int64_t width) {
  const int64_t each = kThreads * width;
  return static_cast<unsigned>((elements + each - 1) / each);
}

template <typename Grad, typename Copy>
void launch_fp32(const AdamwPointers& a, const Common& common, CUstream_st* stream) {
  auto* const master = static_cast<float*>(a.master);
  auto* const exp_avg = static_cast<float*>(a.exp_avg);
  auto* const exp_avg_sq = static_cast<float*>(a.exp_avg_sq);
  const auto* const grad = static_cast<const Grad*>(a.grad);
  auto* const copy = static_cast<Copy*>(a.compute_copy);
  if (takes_packs(a, 4)) {
    adamw_fp32<Grad, Copy, 4><<<blocks_for(a.elements, 4), kThreads, 0, stream>>>(
        master, exp_avg, exp_avg_sq, grad, copy, a.elements, common);
  } else {
    adamw_fp32<Grad, Copy, 1><<<blocks_for(a.elements, 1), kThreads, 0, stream>>>(
        master, exp_avg, exp_avg_sq, grad, copy, a.elements, common);
  }
}

template <typename Grad>
void launch_bf16(const AdamwPointers& a, const Common& common, CUstream_st* stream) {
  auto* const master = static_cast<uint16_t*>(a.master);
  auto* const exp_avg = static_cast<uint16_t*>(a.exp_avg);
  auto* const exp_avg_sq = static_cast<uint16_t*>(a.exp_avg_sq);
  const auto* const grad = static_cast<const Grad*>(a.grad);
  if (takes_packs(a, detail::kRoundingGroup)) {
    adamw_bf16<Grad, 8><<<blocks_for(a.elements, 8), kThreads, 0, stream>>>(master, exp_avg, exp_avg_sq, grad,
                                                                            a.elements, common);
  } else {
    adamw_bf16<Grad, 1><<<blocks_for(a.elements, 1), kThreads, 0, stream>>>(master, exp_avg, exp_avg_sq, grad,
                                                                            a.elements, common);
  }
}

}  // namespace

void launch_adamw_coefficients(const AdamwRow* rows, int64_t segments, const AdamwNumbers& numbers,
                               float* coefficients, CUstream_st* stream) {
  adamw_coefficients<<<1, kThreads, 0, stream>>>(rows, static_cast<int>(segments), numbers,
                                                 reinterpret_cast<float2*>(coefficients));
}

void launch_adamw(const AdamwPointers& arrays, const AdamwDtypes& dtypes, const AdamwRow* rows,
                  int64_t segments, const AdamwNumbers& numbers, const float* coefficients,
                  CUstream_st* stream) {
  if (arrays.elements == 0) return;
  const Common common{rows,
                      reinterpret_cast<const float2*>(coefficients),
                      static_cast<int>(segments),
                      numbers.one_minus_beta1,
                      numbers.beta2_rounded,
                      numbers.one_minus_beta2,
                      numbers.epsilon,
                      numbers.step,
                      numbers.host_step,
                      numbers.clip_factor,
                      numbers.found_inf};
  if (dtypes.states_are_bf16) {
    dtypes.grad_is_bf16 ? launch_bf16<__nv_bfloat16>(arrays, common, stream)
                        : launch_bf16<float>(arrays, common, stream);
  } else if (dtypes.copy_is_bf16) {
    dtypes.grad_is_bf16 ? launch_fp32<__nv_bfloat16, __nv_bfloat16>(arrays, common, stream)
                        : launch_fp32<float, __nv_bfloat16>(arrays, common, stream);
  } else {
    dtypes.grad_is_bf16 ? launch_fp32<__nv_bfloat16, float>(arrays, common, stream)
                        : launch_fp32<float, float>(arrays, common, stream);
  }
}

}  // namespace apus::optim::kernels
