#include "apus/base/error.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

TEST(Error, DataErrorNamesFileAndLine) {
  const DataError error("train.jsonl", 17, "not valid JSON");
  EXPECT_STREQ(error.what(), "train.jsonl:17: not valid JSON");
  EXPECT_EQ(error.line(), 17);
  EXPECT_EQ(error.reason(), "not valid JSON");
}

TEST(Error, DataErrorWithoutLineNamesTheFileAlone) {
  EXPECT_STREQ(DataError("a.json", 0, "is empty").what(), "a.json: is empty");
}

TEST(Error, CommErrorPutsThePlaceFirst) {
  const CommError error({.group = "dp", .operation = "all_reduce", .sequence = 118, .peer = 3}, "timed out");
  EXPECT_STREQ(error.what(), "dp all_reduce #118 (peer 3): timed out");
}

TEST(Error, CheckpointErrorNamesTheTensor) {
  EXPECT_STREQ(CheckpointError("m.safetensors", "w", "is truncated").what(),
               "m.safetensors: tensor 'w': is truncated");
}

TEST(Error, CheckThrowsTheGivenTypeWithTheJoinedMessage) {
  try {
    APUS_CHECK(1 == 2, ShapeError, "x has ", 3, " dims");
    FAIL() << "did not throw";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "x has 3 dims");
  }
}

TEST(Error, AssertSaysThatItIsABugOfApus) {
  EXPECT_THROW(APUS_ASSERT(false, "broken"), Error);
}

}  // namespace
}  // namespace apus
