#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// One adapter and its place in a joint home. Pointers are aligned to 16 bytes, widths and strides multiples
/// of 8 elements.
struct HomeAdapter {
  const void* a = nullptr;  ///< [rank, in] dense; null: zeros, and rank 0
  const void* b = nullptr;  ///< [out, rank] dense
  void* a_into = nullptr;   ///< [room, in]
  void* b_into = nullptr;   ///< [out, room]
  int64_t rank = 0;
  int64_t out = 0;
  float scaling = 1.0F;
};

/// Adapters of one home; a kernel's argument.
struct HomeAdapters {
  static constexpr int kMost = 4;
  HomeAdapter parts[kMost];
  int count = 0;
  int64_t in = 0;          ///< D
  int64_t room = 0;        ///< rows of a_into, columns of b_into
  int64_t row_stride = 0;  ///< of a_into and b_into
};

/// a_into = A, b_into = s B, zeros beyond the rank.
void load_home(const HomeAdapters& adapters, Element element, cudaStream_t stream);

}  // namespace apus::ops::kernels
