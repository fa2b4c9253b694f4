#include "data/bpe_vocabulary.h"

#include <string>

#include <gtest/gtest.h>

namespace apus::data {
namespace {

TEST(Vocabulary, FindsByNameAndById) {
  Vocabulary vocabulary;
  EXPECT_EQ(vocabulary.find("a"), std::nullopt);
  vocabulary.add("a", 3);
  vocabulary.add("", 0);
  EXPECT_EQ(vocabulary.find("a"), 3);
  EXPECT_EQ(vocabulary.find(""), 0);
  EXPECT_EQ(vocabulary.find("b"), std::nullopt);
  EXPECT_EQ(vocabulary.name(3), "a");
  EXPECT_FALSE(vocabulary.has(1));
  EXPECT_FALSE(vocabulary.has(-1));
  EXPECT_FALSE(vocabulary.has(4));
  EXPECT_EQ(vocabulary.size(), 2U);
  EXPECT_EQ(vocabulary.id_limit(), 4);
}

TEST(Vocabulary, TheLastIdOfANameCounts) {
  Vocabulary vocabulary;
  vocabulary.add("a", 1);
  vocabulary.add("a", 2);
  EXPECT_EQ(vocabulary.find("a"), 2);
  EXPECT_EQ(vocabulary.size(), 1U);
}

TEST(Vocabulary, GrowsPastItsFirstTable) {
  Vocabulary vocabulary;
  for (int32_t id = 0; id < 5000; ++id) vocabulary.add("token" + std::to_string(id), id);
  for (int32_t id = 0; id < 5000; ++id) {
    ASSERT_EQ(vocabulary.find("token" + std::to_string(id)), id);
    ASSERT_EQ(vocabulary.name(id), "token" + std::to_string(id));
  }
  EXPECT_EQ(vocabulary.size(), 5000U);
}

TEST(Vocabulary, HoldsTheSameWithRoomMadeBefore) {
  Vocabulary vocabulary;
  vocabulary.add("first", 7);
  vocabulary.reserve(5000);
  for (int32_t id = 0; id < 6; ++id) vocabulary.add("token" + std::to_string(id), id);
  vocabulary.reserve(1);
  EXPECT_EQ(vocabulary.find("first"), 7);
  EXPECT_EQ(vocabulary.find("token5"), 5);
  EXPECT_EQ(vocabulary.size(), 7U);
  EXPECT_EQ(vocabulary.id_limit(), 8);
}

TEST(Vocabulary, KnowsWhetherAnIdIsAName) {
  Vocabulary vocabulary;
  EXPECT_FALSE(vocabulary.is_id_of("a", 0));
  vocabulary.add("a", 0);
  vocabulary.add("b", 1);
  EXPECT_TRUE(vocabulary.is_id_of("b", 1));
  EXPECT_FALSE(vocabulary.is_id_of("b", 0));
  EXPECT_FALSE(vocabulary.is_id_of("b", 2));
  EXPECT_FALSE(vocabulary.is_id_of("b", -1));
  vocabulary.add("a", 2);
  EXPECT_FALSE(vocabulary.is_id_of("a", 0));
  EXPECT_TRUE(vocabulary.is_id_of("a", 2));
}

TEST(ByteLevel, SpellsEveryByteAndReadsItBack) {
  for (int value = 0; value < 256; ++value) {
    const std::string byte(1, static_cast<char>(value));
    std::string name;
    append_byte_level(name, byte);
    EXPECT_EQ(bytes_of_name(name), byte) << value;
  }
  std::string name;
  append_byte_level(name, " a\n\xad");
  EXPECT_EQ(name, "\u0120a\u010a\u0143");
}

TEST(ByteLevel, ANameWithOtherCharactersSpellsItself) {
  EXPECT_EQ(bytes_of_name("a b"), "a b");
  EXPECT_EQ(bytes_of_name("\u4e2d\u0120"), "\u4e2d\u0120");
  EXPECT_EQ(bytes_of_name("\u00e9"), "\xe9");
}

}  // namespace
}  // namespace apus::data
