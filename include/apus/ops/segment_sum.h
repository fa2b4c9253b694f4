#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"

namespace apus::ops {

/// Adds up values by the segment that each belongs to: log-probabilities of tokens by their answer.
/// Maths:       y[s] = sum over the m with segments[m] = s of x[m].
/// Shapes:      x [M], segments int64 [M] in any order, values in [0, count) -> [count].
/// Dtypes:      fp32 | fp64 (others as ATen has them); on a GPU sums are made in fp64 and rounded once.
/// Determinism: run-to-run; no atomics. Meant for few segments: a GPU reads all M once a segment.
/// Throws:      ShapeError if shapes do not fit or devices differ; c10::Error for a segment outside [0, count)
///              on the CPU, where a GPU leaves it out and backward stops with a device-side assertion.
APUS_API at::Tensor segment_sum(const at::Tensor& x_M, const at::Tensor& segments_M, int64_t count);

}  // namespace apus::ops
