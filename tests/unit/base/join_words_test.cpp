#include "apus/base/join_words.h"

#include <gtest/gtest.h>

#include <vector>

namespace apus {
namespace {

TEST(JoinWords, PutsACommaBetween) {
  EXPECT_EQ(join_words({}), "");
  EXPECT_EQ(join_words(std::vector<std::string>{"lora"}), "lora");
  EXPECT_EQ(join_words(std::vector<std::string>{"lora", "full", "x"}), "lora, full, x");
}

}  // namespace
}  // namespace apus
