#include "ops/kernels/divider.h"

#include <gtest/gtest.h>

namespace apus::ops::kernels {
namespace {

constexpr uint32_t kMost = 0x7fffffffu;

void expect_exact(uint32_t divisor, uint32_t number) {
  if (number > kMost) return;
  EXPECT_EQ(Divider(divisor).quotient(number), number / divisor) << number << " / " << divisor;
}

void expect_exact_around_multiples(uint32_t divisor) {
  for (const uint32_t multiple : {1u, 2u, 3u, 1000u, kMost / divisor})
    for (const uint32_t beside : {0u, 1u, 2u})
      if (uint64_t{multiple} * divisor <= kMost) expect_exact(divisor, multiple * divisor - 1 + beside);
}

TEST(Divider, IsExactBelow31Bits) {
  for (uint32_t divisor = 1; divisor < 5000; ++divisor) {
    expect_exact_around_multiples(divisor);
    expect_exact(divisor, 0);
    expect_exact(divisor, kMost);
  }
}

TEST(Divider, TakesEveryDivisorBelow31Bits) {
  for (int bits = 12; bits < 31; ++bits)
    for (const uint32_t beside : {0u, 1u, 2u}) {
      const uint32_t divisor = (1u << bits) - 1 + beside;
      expect_exact_around_multiples(divisor);
      expect_exact(divisor, kMost);
      EXPECT_EQ(Divider(divisor).divisor(), divisor);
    }
  expect_exact(kMost, kMost);
  expect_exact(kMost, kMost - 1);
}

}  // namespace
}  // namespace apus::ops::kernels
