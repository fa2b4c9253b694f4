#include "checkpoint/size_text.h"

#include <gtest/gtest.h>

namespace apus::checkpoint {
namespace {

TEST(SizeText, IsInMebibytesBelowOneGibibyte) {
  EXPECT_EQ(size_text(0), "0.0 MiB");
  EXPECT_EQ(size_text(1), "0.1 MiB");
  EXPECT_EQ(size_text(2'443'111), "2.4 MiB");
  EXPECT_EQ(size_text((int64_t{1} << 30) - 1), "1024.0 MiB");
}

TEST(SizeText, IsInGibibytesFromThereOn) {
  EXPECT_EQ(size_text(int64_t{1} << 30), "1.00 GiB");
  EXPECT_EQ(size_text(int64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(size_text((int64_t{1} << 30) + 1), "1.01 GiB");
  EXPECT_EQ(size_text(int64_t{70} << 40), "71680.00 GiB");
}

}  // namespace
}  // namespace apus::checkpoint
