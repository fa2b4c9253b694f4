// The sum of a flat gradient's squares, by blocks of 1,024 elements.
//
// Reads each element once and writes 8 bytes a block: memory bandwidth is the limit. A warp takes a block: 16
// (or 8, in bf16) bytes a lane and access, all of them loaded before the first is used. Squares of fp32 are
// exact in double, so each addition rounds once; lanes add their elements in one order and a fixed tree adds
// the lanes: a block's bits depend on its elements alone, whatever the dtype, the shard or the card.
//
// The second kernel is one thread: it turns the sum into what the update reads, so that no host waits for it.
#include "parallel/kernels/grad_norm.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace apus::parallel::kernels {
namespace {

constexpr int kBlockElements = 1024;
constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kWidth = 4;                                  // elements of a lane's access
constexpr int kSteps = kBlockElements / (kWarp * kWidth);  // accesses of a lane

__device__ __forceinline__ void load4(const float* from, float (&to)[kWidth]) {
  const float4 pack = __ldg(reinterpret_cast<const float4*>(from));
  to[0] = pack.x, to[1] = pack.y, to[2] = pack.z, to[3] = pack.w;
}

__device__ __forceinline__ void load4(const __nv_bfloat16* from, float (&to)[kWidth]) {
  const uint2 pack = __ldg(reinterpret_cast<const uint2*>(from));
  to[0] = __uint_as_float(pack.x << 16), to[1] = __uint_as_float(pack.x & 0xFFFF0000u);
  to[2] = __uint_as_float(pack.y << 16), to[3] = __uint_as_float(pack.y & 0xFFFF0000u);
}

__device__ __forceinline__ float widen(float value) {
  return value;
}
__device__ __forceinline__ float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

/// The weight of one element; runs are ordered and disjoint.
__device__ double weight_of(const WeightRow* runs, int count, int64_t element) {
  int low = -1, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (runs[middle].begin <= element) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low >= 0 && element < runs[low].end ? runs[low].weight : 1.0;
}

template <typename T>
__global__ void __launch_bounds__(kWarp* kWarps)
    block_sums(const T* __restrict__ grad, int64_t elements, const WeightRow* runs, int run_count,
               bool aligned, double* __restrict__ sums) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t first = block * kBlockElements;
  if (first >= elements) return;
  float values[kSteps][kWidth];
  if (aligned && first + kBlockElements <= elements) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      load4(grad + first + (step * kWarp + lane) * kWidth, values[step]);
    }
  } else {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const int64_t element = first + (step * kWarp + lane) * kWidth + i;
        values[step][i] = element < elements ? widen(grad[element]) : 0.0f;
      }
    }
  }
  double sum = 0.0;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const double value = values[step][i];
      if (run_count == 0) {
        sum = __dadd_rn(sum, __dmul_rn(value, value));
      } else {
        const int64_t element = first + (step * kWarp + lane) * kWidth + i;
        const double weight = weight_of(runs, run_count, element);
        // A weight of 0 leaves out what is not finite, too.
        if (weight != 0.0) sum = __dadd_rn(sum, __dmul_rn(weight, __dmul_rn(value, value)));
      }
    }
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    sum = __dadd_rn(sum, __shfl_down_sync(0xFFFFFFFFu, sum, distance));
  }
  if (lane == 0) sums[block] = sum;
}

__global__ void step_scalars(StepPointers scalars) {
  constexpr double kTiny = 1e-6;  // as torch.nn.utils.clip_grad_norm_
  const double max_norm = scalars.max_norm;
  const double norm = __ddiv_rn(__dsqrt_rn(*scalars.sum), scalars.loss_scale);
  const bool skipped = !isfinite(norm) || (scalars.flag && *scalars.flag != 0.0);
  const bool clips = max_norm > 0.0 && norm + kTiny > max_norm;
  *scalars.norm = norm;
  const double clip = clips ? __ddiv_rn(max_norm, norm + kTiny) : 1.0;
  *scalars.clip_factor = static_cast<float>(__ddiv_rn(clip, scalars.loss_scale));
  *scalars.found_inf = skipped ? 1.0f : 0.0f;
  if (!skipped) *scalars.step += 1;
}

}  // namespace

void launch_block_sums(const NormInput& input, double* sums, CUstream_st* stream) {
  if (input.elements == 0) return;
  const int64_t blocks = (input.elements + kBlockElements - 1) / kBlockElements;
  const auto grid = static_cast<unsigned>((blocks + kWarps - 1) / kWarps);
  const bool aligned = reinterpret_cast<uintptr_t>(input.grad) % (input.is_bf16 ? 8 : 16) == 0;
  const int runs = static_cast<int>(input.run_count);
  if (input.is_bf16) {
    block_sums<<<grid, kWarp * kWarps, 0, stream>>>(static_cast<const __nv_bfloat16*>(input.grad),
                                                    input.elements, input.runs, runs, aligned, sums);
  } else {
    block_sums<<<grid, kWarp * kWarps, 0, stream>>>(static_cast<const float*>(input.grad), input.elements,
                                                    input.runs, runs, aligned, sums);
  }
}

void launch_step_scalars(const StepPointers& scalars, CUstream_st* stream) {
  step_scalars<<<1, 1, 0, stream>>>(scalars);
}

}  // namespace apus::parallel::kernels
