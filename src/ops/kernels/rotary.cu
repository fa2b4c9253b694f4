// Rotary embedding with the split of a fused projection's rows, and backward with their join: one pass each.
// Reads q, k, v (or their gradients) and the row's cosines and sines, writes all heads. Memory bandwidth
// limits it; a block takes a row, or several, keeps their angles in registers and has all their heads in
// flight.
#include "ops/kernels/rotary.cuh"

namespace apus::ops::kernels {
namespace {

// Heads that a thread has in flight.
constexpr int kHeads = 4;
constexpr int kThreads = 128;
// Blocks that a processor has registers for.
constexpr int kBlocks = 5;

template <typename T, bool kTransposed>
__global__ void __launch_bounds__(kThreads, kBlocks) turn_rows(RotaryRows job) {
  const int total = job.q.heads + job.k.heads + job.v.heads, half = job.head_dim / 2;
  const int side_by_side = static_cast<int>(blockDim.y);
  for (int64_t row = int64_t{blockIdx.x} * blockDim.z + threadIdx.z; row < job.rows;
       row += int64_t{gridDim.x} * blockDim.z) {
    Angles<T> angles;
    angles.load(job, row);
    for (int first = threadIdx.y; first < total; first += side_by_side * kHeads) {
      Halves<T> x[kHeads];
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        const int head = first + i * side_by_side;
        x[i].clear();
        if (head >= total) continue;
        const HeadPlace<T> place(job, row, head);
        if (place.in != nullptr) x[i].load(place.in, half);
      }
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        const int head = first + i * side_by_side;
        if (head >= total) continue;
        const HeadPlace<T> place(job, row, head);
        if (place.turns) {
          float a[kLanes<T>], b[kLanes<T>];
          x[i].widen(a, b);
          angles.template turn<kTransposed>(a, b);
          x[i].low = pack<T>(a);
          x[i].high = pack<T>(b);
        }
        x[i].store(place.out, half);
      }
    }
  }
}

template <typename T, bool kTransposed>
void turn(const RotaryRows& job, Element element, cudaStream_t stream) {
  const dim3 block = rotary_block(job, element, kHeads, kThreads);
  const unsigned grid = rotary_grid(turn_rows<T, kTransposed>, job, block);
  turn_rows<T, kTransposed><<<grid, block, 0, stream>>>(job);
  check_launch("rotary");
}

}  // namespace

void rotary_forward(const RotaryRows& job, Element element, cudaStream_t stream) {
  if (element == Element::kBf16)
    turn<__nv_bfloat16, false>(job, element, stream);
  else
    turn<float, false>(job, element, stream);
}

void rotary_backward(const RotaryRows& job, Element element, cudaStream_t stream) {
  if (element == Element::kBf16)
    turn<__nv_bfloat16, true>(job, element, stream);
  else
    turn<float, true>(job, element, stream);
}

}  // namespace apus::ops::kernels
