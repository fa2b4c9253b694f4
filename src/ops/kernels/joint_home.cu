// Brings an adapter into the matrix that holds the frozen weights it belongs to (ops::JointHome): A below the
// weights, s B beside them. Read and written once: 4 bytes an element and direction less than a thousandth of
// a step, so one launch for all parts matters more than bandwidth. A thread moves 8 elements at a time.
#include <algorithm>

#include "ops/kernels/joint_home.h"
#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = 8;  // elements that a thread moves

/// Eight elements, or zeros without a source, times a factor.
template <typename T>
__device__ void move_piece(const T* from, T* to, float scaling) {
  constexpr int kVectors = static_cast<int>(kPiece) / kLanes<T>;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    uint4 raw = make_uint4(0, 0, 0, 0);
    if (from != nullptr) {
      raw = load_vector(from, i);
      if (scaling != 1.0F) {
        float values[kLanes<T>];
        unpack<T>(raw, values);
#pragma unroll
        for (int lane = 0; lane < kLanes<T>; ++lane) values[lane] *= scaling;
        raw = pack<T>(values);
      }
    }
    store_vector(to, i, raw);
  }
}

/// blockIdx.y is the part. Its pieces: those of A row by row, then those of B.
template <typename T>
__global__ void __launch_bounds__(kThreads) load_home_kernel(const HomeAdapters adapters) {
  const HomeAdapter part = adapters.parts[blockIdx.y];
  const int64_t a_width = adapters.in / kPiece, b_width = adapters.room / kPiece;
  const int64_t a_pieces = adapters.room * a_width, pieces = a_pieces + part.out * b_width;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t piece = int64_t{blockIdx.x} * kThreads + threadIdx.x; piece < pieces; piece += step) {
    const bool is_a = piece < a_pieces;
    const int64_t index = is_a ? piece : piece - a_pieces, width = is_a ? a_width : b_width;
    const int64_t row = index / width, column = index % width * kPiece;
    T* to = static_cast<T*>(is_a ? part.a_into : part.b_into) + row * adapters.row_stride + column;
    const T* from = nullptr;
    if (is_a && row < part.rank) from = static_cast<const T*>(part.a) + row * adapters.in + column;
    if (!is_a && column < part.rank) from = static_cast<const T*>(part.b) + row * part.rank + column;
    move_piece<T>(from, to, is_a ? 1.0F : part.scaling);
  }
}

}  // namespace

void load_home(const HomeAdapters& adapters, Element element, cudaStream_t stream) {
  int64_t most = 0;
  for (int part = 0; part < adapters.count; ++part)
    most = std::max(most, (adapters.in + adapters.parts[part].out) * (adapters.room / kPiece));
  if (most == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(512, (most + kThreads - 1) / kThreads));
  const dim3 grid(blocks, static_cast<unsigned>(adapters.count));
  if (element == Element::kBf16)
    load_home_kernel<__nv_bfloat16><<<grid, kThreads, 0, stream>>>(adapters);
  else
    load_home_kernel<float><<<grid, kThreads, 0, stream>>>(adapters);
  check_launch("load_home");
}

}  // namespace apus::ops::kernels
