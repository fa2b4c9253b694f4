#include "apus/train/cards.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "apus/base/error.h"

namespace apus::train {
namespace {

TEST(Cards, AreFoundByNameAliasAndSpelling) {
  EXPECT_EQ(find_card("A100-40GB").name, "A100-40GB");
  EXPECT_EQ(find_card("a100_40gb").name, "A100-40GB");
  EXPECT_EQ(find_card("NVIDIA A100-SXM4-80GB").name, "A100-80GB");
  EXPECT_EQ(find_card("NVIDIA GeForce RTX 4090").name, "RTX-4090");
  EXPECT_EQ(find_card("H100").name, "H100-SXM");
}

TEST(Cards, AnUnknownNameListsTheKnownWithTheNearest) {
  try {
    find_card("A100-40G");
    FAIL() << "an unknown card was found";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("did you mean 'A100-40GB'"), std::string::npos) << text;
    EXPECT_NE(text.find("RTX-3090"), std::string::npos) << text;
  }
}

TEST(Cards, OneThatTrainingDoesNotTakeSaysWhichItDoes) {
  try {
    find_card("V100");
    FAIL() << "a plan for a card that no training takes";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("(training needs compute capability 8.0 or later)"),
              std::string::npos)
        << error.what();
  }
}

TEST(Cards, HaveUniqueNamesAndPlausibleFigures) {
  std::set<std::string> names;
  for (const Card& card : known_cards()) {
    EXPECT_TRUE(names.insert(card.name).second) << card.name;
    for (const std::string& alias : card.aliases) EXPECT_EQ(find_card(alias).name, card.name) << alias;
    EXPECT_GT(card.memory_bytes, int64_t{15} << 30) << card.name;
    EXPECT_LT(card.memory_bytes, int64_t{200} << 30) << card.name;
    EXPECT_TRUE(card.bf16_flops == 0 || card.bf16_flops > card.fp32_flops) << card.name;
    EXPECT_GT(card.memory_bandwidth, 10 * card.link_bandwidth / 5) << card.name;
    EXPECT_GT(card.sustained, 0.3) << card.name;
    EXPECT_LT(card.sustained, 0.95) << card.name;
  }
}

}  // namespace
}  // namespace apus::train
