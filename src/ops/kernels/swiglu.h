#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// Rows that a kernel reads or writes; the stride is in elements. Strides and pointers are multiples of 16
/// bytes.
struct Rows {
  const void* data = nullptr;
  int64_t stride = 0;
};

/// As Rows, to be written.
struct OutRows {
  void* data = nullptr;
  int64_t stride = 0;
};

/// act = silu(gate) * up over [rows, columns]; columns are a multiple of a vector; rows > 0.
struct SwigluForward {
  Rows gate, up;
  OutRows act;
  int64_t rows = 0;
  int64_t columns = 0;
};
void swiglu_forward(const SwigluForward& job, Element element, cudaStream_t stream);

/// Gradients of gate and up.
struct SwigluBackward {
  Rows gate, up, d_act;
  OutRows d_gate, d_up;
  int64_t rows = 0;
  int64_t columns = 0;
};
void swiglu_backward(const SwigluBackward& job, Element element, cudaStream_t stream);

}  // namespace apus::ops::kernels
