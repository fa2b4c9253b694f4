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

/// The arrays of a run of elements; all have the same length and none overlap.
struct AdamwArrays {
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const void* grad = nullptr;  ///< float, or bfloat16 as uint16_t
  void* copy = nullptr;        ///< as CopyKind says
};

/// The arrays of a run whose states are bfloat16.
struct AdamwArrays16 {
  uint16_t* master = nullptr;
  uint16_t* exp_avg = nullptr;
  uint16_t* exp_avg_sq = nullptr;
  const void* grad = nullptr;
};

/// What is written beside the master.
enum class CopyKind : uint8_t {
  kNone,
  kFp32,
  kBf16,
  kBf16Streamed,  ///< past the caches: for arrays that they could not keep anyway
};
constexpr int kCopyKinds = 4;

/// Whose random numbers round a run's states in one step.
struct AdamwRounding {
  uint64_t key = 0;
  uint32_t step = 0;
  int64_t first_element = 0;  ///< of the parameter, at the run's first element
};

/// The pass over `count` elements in fp32.
using UpdateFp32 = void (*)(const AdamwArrays& arrays, int64_t count, const AdamwCoefficients& c);
/// The same for bf16 states, which are rounded stochastically. The coefficients have the second moment's
/// correction folded in: correction2_sqrt is 1.
using UpdateBf16 = void (*)(const AdamwArrays16& arrays, int64_t count, const AdamwCoefficients& c,
                            const AdamwRounding& rounding);

/// The pass for one instruction set. All give the same bits.
struct AdamwKernels {
  const char* name = "";
  UpdateFp32 fp32[2][kCopyKinds] = {};  ///< [gradient in bf16][CopyKind]
  UpdateBf16 bf16[2] = {};              ///< [gradient in bf16]
};

/// Plain loops, for any processor; vector passes leave it what lies before and behind their vectors.
const AdamwKernels& portable_adamw();
/// Null where compiler or processor lacks the instructions.
const AdamwKernels* avx2_adamw();
const AdamwKernels* avx512_adamw();
/// The widest that this processor has.
const AdamwKernels& best_adamw();

/// Rounds `count` floats to bfloat16, ties to even; every NaN becomes 0x7FC0 as in c10::BFloat16.
void round_to_bf16(const float* from, uint16_t* to, int64_t count);

}  // namespace apus::optim::detail
