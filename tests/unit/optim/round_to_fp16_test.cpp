#include "optim/round_to_fp16.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace apus::optim::detail {
namespace {

/// All fp16 numbers' neighbourhoods: from subnormal ones to those beyond the range, ties among them.
at::Tensor values() {
  const at::Tensor bits = at::arange(0, 0x48000000, 0x1000 / 2 + 1, at::kLong).to(at::kInt);
  return bits.view(at::kFloat);
}

at::Tensor rounded(const at::Tensor& from, void (*round)(const float*, uint16_t*, int64_t)) {
  at::Tensor to = at::empty({from.numel()}, at::kHalf);
  round(from.const_data_ptr<float>(), static_cast<uint16_t*>(to.mutable_data_ptr()), from.numel());
  return to;
}

TEST(RoundToFp16, BothFormsGiveTorchsBits) {
  const at::Tensor from = values(), wanted = from.to(at::kHalf).view(at::kShort);
  EXPECT_TRUE(at::equal(rounded(from, round_to_fp16).view(at::kShort), wanted));
  EXPECT_TRUE(at::equal(rounded(from, round_to_fp16_portably).view(at::kShort), wanted));
  const at::Tensor negative = from.neg();
  EXPECT_TRUE(at::equal(rounded(negative, round_to_fp16), negative.to(at::kHalf)));
}

TEST(RoundToFp16, WhatIsTooLargeBecomesInfiniteAndNoNumberStaysNone) {
  const std::vector<float> from{65504.0f, 65519.0f, 65520.0f, -1e9f, std::numeric_limits<float>::quiet_NaN()};
  const at::Tensor in = at::empty({5}, at::kFloat);
  std::copy(from.begin(), from.end(), in.mutable_data_ptr<float>());
  const at::Tensor out = rounded(in, round_to_fp16).to(at::kFloat);
  const float* at = out.const_data_ptr<float>();
  EXPECT_EQ(at[0], 65504.0f);
  EXPECT_EQ(at[1], 65504.0f);
  EXPECT_EQ(at[2], std::numeric_limits<float>::infinity());
  EXPECT_EQ(at[3], -std::numeric_limits<float>::infinity());
  EXPECT_NE(at[4], at[4]);
}

}  // namespace
}  // namespace apus::optim::detail
