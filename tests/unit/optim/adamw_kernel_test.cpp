#include "optim/adamw_kernel.h"

#include <bit>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/dtype.h"

namespace apus::optim::detail {
namespace {

TEST(AdamwKernel, RoundsToBf16AsTheRestOfTheLibrary) {
  // Every upper half with the lower halves around a tie, so that rounding up, down, to even and overflow all
  // occur.
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 1u << 16; ++upper)
    for (const uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
  std::vector<uint16_t> rounded(values.size());
  round_to_bf16(values.data(), rounded.data(), static_cast<int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != values[i])
      ASSERT_EQ(rounded[i], 0x7FC0) << i;
    else
      ASSERT_EQ(rounded[i], bf16_from_float(values[i])) << i;
  }
}

TEST(AdamwKernel, VectorBodyAndScalarRemainderGiveTheSameBits) {
  constexpr int64_t kCount = 1031;
  const AdamwCoefficients c{.clip = 0.7f,
                            .decay = 0.999f,
                            .one_minus_beta1 = 0.1f,
                            .beta2 = 0.95f,
                            .one_minus_beta2 = 0.05f,
                            .minus_step_size = -3e-3f,
                            .correction2_sqrt = 0.3f,
                            .epsilon = 1e-8f};
  std::vector<float> grad(kCount);
  for (int64_t i = 0; i < kCount; ++i) grad[i] = 1.0f / static_cast<float>(i * 7 % 101 - 50.5);
  std::vector<float> master[2], exp_avg[2], exp_avg_sq[2];
  for (const int64_t stride : {kCount, int64_t{1}}) {
    const int at = stride == 1;
    master[at].assign(kCount, 0.3f);
    exp_avg[at].assign(kCount, 0.01f);
    exp_avg_sq[at].assign(kCount, 0.02f);
    const AdamwArrays arrays{master[at].data(), exp_avg[at].data(), exp_avg_sq[at].data(), grad.data()};
    for (int64_t begin = 0; begin < kCount; begin += stride) adamw_update(arrays, begin, begin + stride, c);
  }
  EXPECT_EQ(master[0], master[1]);
  EXPECT_EQ(exp_avg[0], exp_avg[1]);
  EXPECT_EQ(exp_avg_sq[0], exp_avg_sq[1]);
  EXPECT_NE(master[0][0], 0.3f);
}

}  // namespace
}  // namespace apus::optim::detail
