// Rotary embedding with the split of a fused projection's rows, and backward with their join: one pass each.
// Reads q, k, v (or their gradients) and the row's cosines and sines, writes all heads. A thread holds one
// piece of both halves of one head; the heads of a row read its angles again from the first-level cache.
// Memory bandwidth limits it.
#include "ops/kernels/rotary.cuh"

#include "ops/kernels/early_launch.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kThreads = 128;
// Blocks a multiprocessor: with 48 registers a thread all of its six loads travel together. Left to itself
// the compiler takes 32, and loads angles one after another.
constexpr int kBlocks = 10;

template <typename T, bool kTransposed>
__global__ void __launch_bounds__(kThreads, kBlocks)
    turn_heads(RotaryRows job, Divider heads, uint32_t count) {
  const uint32_t unit = blockIdx.x * blockDim.y + threadIdx.y;
  wait_for_turn();
  if (unit >= count) return;
  const auto [row, index] = place_of(unit, heads);
  const HeadPlace<T> place(job, row, static_cast<int>(index));
  const int half = job.head_dim / 2;
  Halves<T> x;
  x.clear();
  if (place.in != nullptr) x.load(place.in, half);
  if (place.turns) {
    Angles<T> angles;
    angles.load(job, row);
    x.keep_packed();  // all loads are on their way before the first use
    angles.keep_packed();
    float a[kLanes<T>], b[kLanes<T>];
    x.widen(a, b);
    angles.template turn<kTransposed>(a, b);
    x.low = pack<T>(a);
    x.high = pack<T>(b);
  }
  x.store(place.out, half);
}

template <typename T, bool kTransposed>
void turn(const RotaryRows& job, cudaStream_t stream) {
  const dim3 block = heads_block<T>(job, kThreads);
  const int64_t count = job.rows * heads_of(job);  // no card holds 2^31 heads
  launch_early(turn_heads<T, kTransposed>, {blocks_of(count, block.y), block, stream}, job,
               Divider(static_cast<uint32_t>(heads_of(job))), static_cast<uint32_t>(count));
  check_launch("rotary");
}

}  // namespace

void rotary_forward(const RotaryRows& job, Element element, cudaStream_t stream) {
  if (element == Element::kBf16)
    turn<__nv_bfloat16, false>(job, stream);
  else
    turn<float, false>(job, stream);
}

void rotary_backward(const RotaryRows& job, Element element, cudaStream_t stream) {
  if (element == Element::kBf16)
    turn<__nv_bfloat16, true>(job, stream);
  else
    turn<float, true>(job, stream);
}

}  // namespace apus::ops::kernels
