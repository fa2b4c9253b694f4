#pragma once

#include <cstdint>

#include "optim/adamw_rows.h"

struct CUstream_st;  // cudaStream_t points to one

namespace apus::optim::kernels {

/// The arrays of a shard; compute_copy may be null.
struct AdamwPointers {
  void* master = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  const void* grad = nullptr;
  void* compute_copy = nullptr;
  int64_t elements = 0;
};

/// Which dtypes the arrays have.
struct AdamwDtypes {
  bool states_are_bf16 = false;
  bool grad_is_bf16 = false;
  bool copy_is_bf16 = false;
  bool copy_is_fp16 = false;
};

/// One step's numbers. The scalars behind pointers lie on the device; null = 1, 0 and the host's step.
struct AdamwNumbers {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double decay = 1;
  double correction1 = 1;       // 1 - beta1^step, where the host knows the step
  double correction2_sqrt = 1;  // sqrt(1 - beta2^step), likewise
  int64_t host_step = 1;
  float one_minus_beta1 = 0;
  float beta2_rounded = 0;
  float one_minus_beta2 = 0;
  double epsilon = 0;
  /// Whether the second moment's correction is folded into step size and epsilon, as for bf16 states.
  bool folds_correction = false;
  const int64_t* step = nullptr;
  const float* clip_factor = nullptr;
  const float* found_inf = nullptr;
};

/// Computes the segments' coefficients of this step, float pairs [segments + 1].
/// `rows` here and below: the segments, and behind them their begins as int64.
void launch_adamw_coefficients(const detail::AdamwRow* rows, int64_t segments, const AdamwNumbers& numbers,
                               float* coefficients, CUstream_st* stream);

/// The update itself.
void launch_adamw(const AdamwPointers& arrays, const AdamwDtypes& dtypes, const detail::AdamwRow* rows,
                  int64_t segments, const AdamwNumbers& numbers, const float* coefficients,
                  CUstream_st* stream);

}  // namespace apus::optim::kernels
