#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace apus::ops::kernels {

/// Values and the segment of each.
template <typename T>
struct SegmentValues {
  const T* values = nullptr;          ///< [count], with a stride
  int64_t stride = 1;                 ///< elements from value to value
  const int64_t* segments = nullptr;  ///< [count], in any order
  int64_t count = 0;
};

/// sums[s] = sum of the values of segment s, added in fp64 in an order that the count alone decides.
void segment_sum(const SegmentValues<float>& all, float* sums, int64_t segments, cudaStream_t stream);
void segment_sum(const SegmentValues<double>& all, double* sums, int64_t segments, cudaStream_t stream);

}  // namespace apus::ops::kernels
