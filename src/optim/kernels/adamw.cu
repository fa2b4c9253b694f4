// AdamW over one flat shard in one pass.
//
// Fused: clipping, both moments, decay, the step, and the 16-bit copy that the next forward reads. An element
// of fp32 states reads 16 bytes (12 + 2 with a bf16 gradient) and writes 12 (+ 2 for the copy): memory
// bandwidth is the limit. A warp takes 128 neighbours, 16 bytes a lane and array, and issues all its loads
// before it looks at anything else: the search for its segment (32 borders compared at a time), the
// coefficients and the flag that may forbid the write hide behind them. (Two accesses a lane were 5 percent
// slower on an H200.)
//
// Loads and stores say nothing to the L2: lines marked to be evicted first do not displace what work before
// left there, and 2.4 percent of the speed went with the place.
//
// Padding between segments is loaded and not written; a warp across a border goes element by element. No
// contraction (__fmul_rn and the like), division and square root round correctly: the bits are those of
// adamw_kernel.cpp.
//
// bf16 states: 8 neighbours a lane, widened, updated in fp32 and rounded stochastically. One Philox block
// gives eight times 16 bits, so three blocks a lane serve the three arrays. Arithmetic is as much a limit as
// the 14 bytes an element (all the more at the clocks of a card at its power cap), so the second moment's
// correction is folded into the coefficients: one division, not two; and nothing branches before all eight
// are done.
#include "optim/kernels/adamw.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "apus/base/philox.h"

namespace apus::optim::kernels {
namespace {

using detail::AdamwRow;
using detail::RoundedArray;

constexpr int kThreads = 128;

constexpr int kWarp = 32;
// fp32 states: elements of a 16-byte access, and accesses of a lane to each array.
constexpr int kWidth = 4;
constexpr int kAccesses = 1;

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
  const int64_t* begins;
  const float2* coefficients;
  int segments;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  const int64_t* step;
  int64_t host_step;
  const float* clip_factor;
  const float* found_inf;
};

/// What a thread reads before it knows its segment.
struct Scalars {
  float clip;
  float found_inf;
  float2 shared;  // correction2_sqrt, epsilon
};

__device__ __forceinline__ Scalars scalars_of(const Common& common) {
  return {common.clip_factor ? __ldg(common.clip_factor) : 1.0f,
          common.found_inf ? __ldg(common.found_inf) : 0.0f, __ldg(common.coefficients + common.segments)};
}

/// Correctly rounded unless a quotient or the product that checks it is subnormal, and without a branch.
__device__ __forceinline__ float divide(float a, float b) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(b));
  reciprocal = __fmaf_rn(reciprocal, __fmaf_rn(-b, reciprocal, 1.0f), reciprocal);
  const float quotient = __fmul_rn(a, reciprocal);
  return __fmaf_rn(__fmaf_rn(-b, quotient, a), reciprocal, quotient);
}

// Bits of the least number above zero whose root quick_root has right: 2^-101.
constexpr uint32_t kLeastForRoot = 0x0D000000u;

/// The root of zero or of numbers from 2^-101 on as it rounds, NaN for what is negative or infinite: what
/// __fsqrt_rn does for most numbers, without its branch, so that elements of a lane overlap.
__device__ __forceinline__ float quick_root(float v) {
  constexpr float kBelowThem = 0x1p-126f;  // changes nothing but zero, whose reciprocal root is finite then
  float reciprocal;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(__fadd_rn(v, kBelowThem)));
  const float root = __fmul_rn(v, reciprocal);
  return __fmaf_rn(__fmaf_rn(-root, root, v), __fmul_rn(reciprocal, 0.5f), root);
}

/// Takes note of a number in `most`, which is above kAllRoots once quick_root has one of them wrong.
__device__ __forceinline__ void check_root(uint32_t& most, float v) {
  most = max(most, __float_as_uint(v) - kLeastForRoot);
}
constexpr uint32_t kAllRoots = 0u - kLeastForRoot;  // zero's place: numbers below 2^-101 lie above it

/// kQuick: without branches; gives NaN where a root or quotient leaves the range of its own arithmetic above,
/// and shows in check_root where below.
enum class Arithmetic { kExact, kQuick };

/// `kFolded`: the second moment's correction is folded into step size and epsilon.
template <bool kFolded, Arithmetic kArithmetic = Arithmetic::kExact>
__device__ __forceinline__ void update(float& p, float& m, float& v, float grad, const Coefficients& c) {
  const float g = __fmul_rn(grad, c.clip);
  m = __fadd_rn(m, __fmul_rn(c.one_minus_beta1, __fsub_rn(g, m)));
  v = __fadd_rn(__fmul_rn(v, c.beta2), __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
  const float root = kArithmetic == Arithmetic::kQuick ? quick_root(v) : __fsqrt_rn(v);
  const float step = __fmul_rn(c.minus_step_size, m);
  const float denominator = __fadd_rn(kFolded ? root : __fdiv_rn(root, c.correction2_sqrt), c.epsilon);
  p = __fadd_rn(__fmul_rn(p, c.decay),
                kArithmetic == Arithmetic::kQuick ? divide(step, denominator) : __fdiv_rn(step, denominator));
}

/// The last segment that begins at or before `element`, or -1.
__device__ int segment_of(const Common& common, int64_t element) {
  int low = -1, high = common.segments;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (common.begins[middle] <= element) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// The same for an element that the whole warp asks for: its lanes compare 32 borders at a time.
__device__ __forceinline__ int segment_of_warp(const Common& common, int64_t element) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int low = -1, high = common.segments;
  while (high - low > 1) {
    const int step = (high - low - 2 + kWarp) / kWarp;
    const int probe = low + 1 + lane * step;
    const bool begins = probe < high && __ldg(common.begins + probe) <= element;
    const int count = __popc(__ballot_sync(0xFFFFFFFFu, begins));
    high = min(high, low + 1 + count * step);
    if (count > 0) low += 1 + (count - 1) * step;
  }
  return low;
}

__device__ __forceinline__ Coefficients coefficients_of(const Common& common, const Scalars& scalars,
                                                        int segment) {
  const float2 own = __ldg(common.coefficients + segment);
  return {scalars.clip,           own.x, common.one_minus_beta1, common.beta2,
          common.one_minus_beta2, own.y, scalars.shared.x,       scalars.shared.y};
}

/// The first element of this thread's warp, where a warp takes `count` of them.
__device__ __forceinline__ int64_t first_of_warp(int count) {
  return (static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp) * count;
}

/// N neighbours of one array, 8 or 16 bytes, or two times 16.
template <typename T, int N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load(const T* from) {
  Pack<T, N> pack;
  if constexpr (sizeof(pack) == 8) {
    *reinterpret_cast<uint2*>(&pack) = *reinterpret_cast<const uint2*>(from);
  } else {
#pragma unroll
    for (int part = 0; part < static_cast<int>(sizeof(pack) / 16); ++part) {
      reinterpret_cast<uint4*>(&pack)[part] = reinterpret_cast<const uint4*>(from)[part];
    }
  }
  return pack;
}

template <typename T, int N>
__device__ __forceinline__ void store(T* to, const Pack<T, N>& pack) {
  if constexpr (sizeof(pack) == 8) {
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(&pack);
  } else {
#pragma unroll
    for (int part = 0; part < static_cast<int>(sizeof(pack) / 16); ++part) {
      reinterpret_cast<uint4*>(to)[part] = reinterpret_cast<const uint4*>(&pack)[part];
    }
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
__device__ __forceinline__ void narrow(float value, __half& to) {
  to = __float2half_rn(value);
}

template <typename Grad, typename Copy>
struct Fp32Arrays {
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  const Grad* grad;
  Copy* copy;  // null where the master is the parameter
  int64_t elements;
};

/// One element that finds its own segment.
template <typename Grad, typename Copy>
__device__ void update_one(const Fp32Arrays<Grad, Copy>& a, int64_t element, const Common& common,
                           const Scalars& scalars) {
  const int segment = segment_of(common, element);
  if (segment < 0 || element >= common.rows[segment].end) return;
  float p = a.master[element], m = a.exp_avg[element], v = a.exp_avg_sq[element];
  update<false>(p, m, v, widen(a.grad[element]), coefficients_of(common, scalars, segment));
  a.master[element] = p;
  a.exp_avg[element] = m;
  a.exp_avg_sq[element] = v;
  if (a.copy) narrow(p, a.copy[element]);
}

/// fp32 states at any address: one element a thread.
template <typename Grad, typename Copy>
__global__ void __launch_bounds__(kThreads) adamw_fp32_each(Fp32Arrays<Grad, Copy> a, Common common) {
  const int64_t element = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (element >= a.elements) return;
  const Scalars scalars = scalars_of(common);
  if (scalars.found_inf != 0.0f) return;
  update_one(a, element, common, scalars);
}

/// fp32 states at aligned addresses, a multiple of four of them.
template <typename Grad, typename Copy>
__global__ void __launch_bounds__(kThreads) adamw_fp32(Fp32Arrays<Grad, Copy> a, Common common) {
  constexpr int kStride = kWarp * kWidth;
  const int64_t warp_first = first_of_warp(kStride * kAccesses);
  if (warp_first >= a.elements) return;
  const int64_t first = warp_first + threadIdx.x % kWarp * kWidth;
  Pack<float, kWidth> p[kAccesses], m[kAccesses], v[kAccesses];
  Pack<Grad, kWidth> g[kAccesses];
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    const int64_t at = first + access * kStride;
    if (at >= a.elements) continue;
    p[access] = load<float, kWidth>(a.master + at);
    m[access] = load<float, kWidth>(a.exp_avg + at);
    v[access] = load<float, kWidth>(a.exp_avg_sq + at);
    g[access] = load<Grad, kWidth>(a.grad + at);
  }
  const Scalars scalars = scalars_of(common);
  const int segment = segment_of_warp(common, warp_first);
  if (scalars.found_inf != 0.0f) return;
  if (segment >= 0 && warp_first + kStride * kAccesses <= common.rows[segment].end) {
    const Coefficients c = coefficients_of(common, scalars, segment);
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      const int64_t at = first + access * kStride;
      Pack<Copy, kWidth> rounded;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        update<false>(p[access].at[i], m[access].at[i], v[access].at[i], widen(g[access].at[i]), c);
        narrow(p[access].at[i], rounded.at[i]);
      }
      store<float, kWidth>(a.master + at, p[access]);
      store<float, kWidth>(a.exp_avg + at, m[access]);
      store<float, kWidth>(a.exp_avg_sq + at, v[access]);
      if (a.copy) store<Copy, kWidth>(a.copy + at, rounded);
    }
    return;
  }
  for (int access = 0; access < kAccesses; ++access) {
    for (int i = 0; i < kWidth; ++i) {
      const int64_t element = first + access * kStride + i;
      if (element < a.elements) update_one(a, element, common, scalars);
    }
  }
}

/// Rounds up where the random bits carry into the kept ones; not for NaN.
__device__ __forceinline__ uint16_t round_up_or_down(float value, uint32_t random) {
  return static_cast<uint16_t>((__float_as_uint(value) + random) >> 16);
}

__device__ __forceinline__ float widen_bits(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

struct Product {
  uint32_t low;
  uint32_t high;
};

__device__ __forceinline__ Product multiply_wide(uint32_t a, uint32_t b) {
  Product product;
  asm("{ .reg .u64 wide; mul.wide.u32 wide, %2, %3; mov.b64 {%0, %1}, wide; }"
      : "=r"(product.low), "=r"(product.high)
      : "r"(a), "r"(b));
  return product;
}

/// philox4x32<kRoundingRounds> of base/philox.h, with 32 x 32 -> 64 bit products: nvcc makes more of 64 bit
/// ones.
__device__ __forceinline__ PhiloxBlock random_block(uint64_t key, uint64_t group, uint32_t step,
                                                    RoundedArray array) {
  uint32_t w0 = static_cast<uint32_t>(group), w1 = static_cast<uint32_t>(group >> 32), w2 = step,
           w3 = static_cast<uint32_t>(array);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < detail::kRoundingRounds; ++round) {
    const Product a = multiply_wide(w0, 0xD2511F53u), b = multiply_wide(w2, 0xCD9E8D57u);
    w0 = b.high ^ w1 ^ k0, w1 = b.low;
    w2 = a.high ^ w3 ^ k1, w3 = a.low;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{w0, w1, w2, w3}};
}

/// The sixteen bits of element `lane` of a block's eight.
__device__ __forceinline__ uint32_t random_bits(const PhiloxBlock& block, uint32_t lane) {
  return block.w[lane / 2] >> (lane % 2 * 16) & 0xFFFFu;
}

template <typename Grad>
struct Bf16Arrays {
  uint16_t* master;
  uint16_t* exp_avg;
  uint16_t* exp_avg_sq;
  const Grad* grad;
  int64_t elements;
};

__device__ __forceinline__ uint32_t step_of(const Common& common) {
  return static_cast<uint32_t>(common.step ? *common.step : common.host_step);
}

/// One element that finds its own segment.
template <typename Grad>
__device__ void update_one(const Bf16Arrays<Grad>& a, int64_t element, const Common& common,
                           const Scalars& scalars) {
  const int segment = segment_of(common, element);
  if (segment < 0 || element >= common.rows[segment].end) return;
  const AdamwRow row = common.rows[segment];
  float values[3] = {widen_bits(a.master[element]), widen_bits(a.exp_avg[element]),
                     widen_bits(a.exp_avg_sq[element])};
  update<true>(values[0], values[1], values[2], widen(a.grad[element]),
               coefficients_of(common, scalars, segment));
  const auto place = static_cast<uint64_t>(row.first_element + (element - row.begin));
  const auto lane = static_cast<uint32_t>(place % detail::kRoundingGroup);
  uint16_t* const targets[3] = {a.master, a.exp_avg, a.exp_avg_sq};
  for (uint32_t array = 0; array < 3; ++array) {
    const PhiloxBlock random = random_block(row.rounding_key, place / detail::kRoundingGroup, step_of(common),
                                            static_cast<RoundedArray>(array));
    // A NaN as c10::BFloat16 writes it.
    targets[array][element] =
        isnan(values[array]) ? 0x7FC0 : round_up_or_down(values[array], random_bits(random, lane));
  }
}

/// bf16 states at any address: one element a thread.
template <typename Grad>
__global__ void __launch_bounds__(kThreads) adamw_bf16_each(Bf16Arrays<Grad> a, Common common) {
  const int64_t element = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (element >= a.elements) return;
  const Scalars scalars = scalars_of(common);
  if (scalars.found_inf != 0.0f) return;
  update_one(a, element, common, scalars);
}

/// bf16 states at aligned addresses, a multiple of eight of them.
template <typename Grad>
__global__ void __launch_bounds__(kThreads) adamw_bf16(Bf16Arrays<Grad> a, Common common) {
  constexpr int kWidth = detail::kRoundingGroup;
  const int64_t warp_first = first_of_warp(kWarp * kWidth);
  if (warp_first >= a.elements) return;
  const int64_t first = warp_first + threadIdx.x % kWarp * kWidth;
  Pack<uint16_t, kWidth> p, m, v;
  Pack<Grad, kWidth> g;
  if (first < a.elements) {
    p = load<uint16_t, kWidth>(a.master + first);
    m = load<uint16_t, kWidth>(a.exp_avg + first);
    v = load<uint16_t, kWidth>(a.exp_avg_sq + first);
    g = load<Grad, kWidth>(a.grad + first);
  }
  const Scalars scalars = scalars_of(common);
  const int segment = segment_of_warp(common, warp_first);
  if (scalars.found_inf != 0.0f) return;
  if (segment >= 0 && warp_first + kWarp * kWidth <= common.rows[segment].end) {
    const AdamwRow row = common.rows[segment];
    const auto place = static_cast<uint64_t>(row.first_element + (first - row.begin));
    if (place % kWidth == 0) {
      const Coefficients c = coefficients_of(common, scalars, segment);
      const uint32_t step = step_of(common);
      const PhiloxBlock for_p = random_block(row.rounding_key, place / kWidth, step, RoundedArray::kMaster);
      const PhiloxBlock for_m = random_block(row.rounding_key, place / kWidth, step, RoundedArray::kExpAvg);
      const PhiloxBlock for_v = random_block(row.rounding_key, place / kWidth, step, RoundedArray::kExpAvgSq);
      bool has_nan = false;  // a NaN of any state makes a NaN of the parameter
      uint32_t most = 0;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        float wide_p = widen_bits(p.at[i]), wide_m = widen_bits(m.at[i]), wide_v = widen_bits(v.at[i]);
        update<true, Arithmetic::kQuick>(wide_p, wide_m, wide_v, widen(g.at[i]), c);
        has_nan = has_nan || isnan(wide_p);
        check_root(most, wide_v);
        p.at[i] = round_up_or_down(wide_p, random_bits(for_p, i));
        m.at[i] = round_up_or_down(wide_m, random_bits(for_m, i));
        v.at[i] = round_up_or_down(wide_v, random_bits(for_v, i));
      }
      if (!has_nan && most <= kAllRoots) {
        store<uint16_t, kWidth>(a.master + first, p);
        store<uint16_t, kWidth>(a.exp_avg + first, m);
        store<uint16_t, kWidth>(a.exp_avg_sq + first, v);
        return;
      }
    }
  }
  for (int64_t element = first; element < min(first + kWidth, a.elements); ++element) {
    update_one(a, element, common, scalars);
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
  const double folded = numbers.folds_correction ? correction2_sqrt : 1.0;
  for (int segment = threadIdx.x; segment < segments; segment += blockDim.x) {
    const AdamwRow& row = rows[segment];
    const double lr = __dmul_rn(numbers.lr, row.lr_scale);
    const double decay = __dsub_rn(1.0, __dmul_rn(lr, __dmul_rn(numbers.decay, row.weight_decay)));
    const double minus_step_size = __dmul_rn(__ddiv_rn(-lr, correction1), folded);
    coefficients[segment] = {static_cast<float>(decay), static_cast<float>(minus_step_size)};
  }
  if (threadIdx.x == 0) {
    const double divisor = numbers.folds_correction ? 1.0 : correction2_sqrt;
    coefficients[segments] = {static_cast<float>(divisor),
                              static_cast<float>(__dmul_rn(numbers.epsilon, folded))};
  }
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

/// Blocks where a thread takes `each` elements.
unsigned blocks_for(int64_t elements, int64_t each) {
  return static_cast<unsigned>((elements + kThreads * each - 1) / (kThreads * each));
}

template <typename Grad, typename Copy>
void launch_fp32(const AdamwPointers& from, const Common& common, CUstream_st* stream) {
  const Fp32Arrays<Grad, Copy> a{static_cast<float*>(from.master),      static_cast<float*>(from.exp_avg),
                                 static_cast<float*>(from.exp_avg_sq),  static_cast<const Grad*>(from.grad),
                                 static_cast<Copy*>(from.compute_copy), from.elements};
  if (takes_packs(from, 4)) {
    adamw_fp32<<<blocks_for(a.elements, kWidth * kAccesses), kThreads, 0, stream>>>(a, common);
  } else {
    adamw_fp32_each<<<blocks_for(a.elements, 1), kThreads, 0, stream>>>(a, common);
  }
}

template <typename Grad>
void launch_bf16(const AdamwPointers& from, const Common& common, CUstream_st* stream) {
  const Bf16Arrays<Grad> a{static_cast<uint16_t*>(from.master), static_cast<uint16_t*>(from.exp_avg),
                           static_cast<uint16_t*>(from.exp_avg_sq), static_cast<const Grad*>(from.grad),
                           from.elements};
  if (takes_packs(from, detail::kRoundingGroup)) {
    adamw_bf16<<<blocks_for(a.elements, detail::kRoundingGroup), kThreads, 0, stream>>>(a, common);
  } else {
    adamw_bf16_each<<<blocks_for(a.elements, 1), kThreads, 0, stream>>>(a, common);
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
                      reinterpret_cast<const int64_t*>(rows + segments),
                      reinterpret_cast<const float2*>(coefficients),
                      static_cast<int>(segments),
                      numbers.one_minus_beta1,
                      numbers.beta2_rounded,
                      numbers.one_minus_beta2,
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
  } else if (dtypes.copy_is_fp16) {
    dtypes.grad_is_bf16 ? launch_fp32<__nv_bfloat16, __half>(arrays, common, stream)
                        : launch_fp32<float, __half>(arrays, common, stream);
  } else {
    dtypes.grad_is_bf16 ? launch_fp32<__nv_bfloat16, float>(arrays, common, stream)
                        : launch_fp32<float, float>(arrays, common, stream);
  }
}

}  // namespace apus::optim::kernels
