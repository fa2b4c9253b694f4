#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t points to one

namespace apus::parallel::kernels {

/// Elements [begin, end) whose squares weigh `weight`.
struct WeightRow {
  int64_t begin;
  int64_t end;
  double weight;
};

/// A flat gradient and what its squares weigh; `runs` may be null.
struct NormInput {
  const void* grad = nullptr;
  bool is_bf16 = false;
  int64_t elements = 0;
  const WeightRow* runs = nullptr;
  int64_t run_count = 0;
};

/// sums [ceil(elements / 1024)] <- each block's sum of weighted squares.
void launch_block_sums(const NormInput& input, double* sums, CUstream_st* stream);

/// The scalars of one step, those on the device of one element each.
struct StepPointers {
  const double* sum = nullptr;   // of squares
  const double* flag = nullptr;  // not 0: skip; null = 0
  double* norm = nullptr;
  float* clip_factor = nullptr;
  float* found_inf = nullptr;
  int64_t* step = nullptr;  // grows by one unless the step is skipped
  double max_norm = 0.0;
  double loss_scale = 1.0;
};

/// norm = sqrt(sum) / loss_scale; clip_factor = f / loss_scale, f so that the clipped norm is at most max_norm
/// (0: 1); found_inf where the norm is not finite or the flag is set.
void launch_step_scalars(const StepPointers& scalars, CUstream_st* stream);

}  // namespace apus::parallel::kernels
