#pragma once

#include <cstdint>

namespace apus::optim::detail {

/// One segment's coefficients, rounded to fp32 once.
struct AdamwCoefficients {
  float clip = 1;             ///< multiplies the gradient
  float decay = 1;            ///< 1 - lr * weight_decay
  float one_minus_beta1 = 0;  ///< weight of the new gradient in the first moment
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float minus_step_size = 0;   ///< -lr / (1 - beta1^step)
  float correction2_sqrt = 1;  ///< sqrt(1 - beta2^step)
  float epsilon = 0;
};

/// The arrays of a shard; all have the same length and none overlap.
struct AdamwArrays {
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const float* grad = nullptr;
};

/// Updates elements [begin, end).
void adamw_update(const AdamwArrays& arrays, int64_t begin, int64_t end, const AdamwCoefficients& c);

/// The arrays of a shard whose states are bfloat16.
struct AdamwArrays16 {
  uint16_t* master = nullptr;
  uint16_t* exp_avg = nullptr;
  uint16_t* exp_avg_sq = nullptr;
  const float* grad = nullptr;  ///< counted like the others
};

/// Whose random numbers round a segment's states in one step.
struct AdamwRounding {
  uint64_t key = 0;
  uint32_t step = 0;
  int64_t first_element = 0;  ///< of the parameter, at element `begin`
};

/// Updates elements [begin, end) in fp32 and rounds the three states stochastically.
void adamw_update_bf16(const AdamwArrays16& arrays, int64_t begin, int64_t end, const AdamwCoefficients& c,
                       const AdamwRounding& rounding);

/// Widens `count` bfloat16 numbers.
void widen_bf16(const uint16_t* from, float* to, int64_t count);

/// Rounds `count` floats to bfloat16, ties to even; every NaN becomes 0x7FC0 as in c10::BFloat16.
void round_to_bf16(const float* from, uint16_t* to, int64_t count);

}  // namespace apus::optim::detail
