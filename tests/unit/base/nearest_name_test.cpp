#include "apus/base/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace apus {
namespace {

const std::vector<std::string> kFlags = {"lora_rank", "lora_alpha", "learning_rate", "bf16", "seed"};

TEST(NearestName, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("rnak", "rank"), 1) << "swapped neighbours are one slip";
  EXPECT_EQ(edit_distance("abc", "acb"), edit_distance("acb", "abc"));
}

TEST(NearestName, FindsTheMistypedFlag) {
  EXPECT_EQ(nearest_name("lora_rnak", kFlags), "lora_rank");
  EXPECT_EQ(nearest_name("learningrate", kFlags), "learning_rate");
  EXPECT_EQ(nearest_name("LORA-ALPHA", kFlags), "lora_alpha");
  EXPECT_EQ(nearest_name("sed", kFlags), "seed");
}

TEST(NearestName, FindsNothingForAnotherWord) {
  EXPECT_EQ(nearest_name("tensor_parallel", kFlags), std::nullopt);
  EXPECT_EQ(nearest_name("xy", kFlags), std::nullopt);
  EXPECT_EQ(nearest_name("word", {}), std::nullopt);
}

TEST(NearestName, EndsAMessage) {
  EXPECT_EQ(did_you_mean("bf61", kFlags), " (did you mean 'bf16'?)");
  EXPECT_EQ(did_you_mean("something else", kFlags), "");
}

}  // namespace
}  // namespace apus
