#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "data/bpe.h"

namespace apus::data {
namespace {

using Ids = std::vector<int32_t>;

struct Symbols {
  Ids ids;
  std::vector<uint32_t> lengths;
};

Symbols encode(const std::vector<std::string>& names, const BpeModel::NamedMerges& merges, BpeOptions options,
               const std::string& word) {
  Vocabulary vocabulary;
  for (size_t i = 0; i < names.size(); ++i) vocabulary.add(names[i], static_cast<int32_t>(i));
  options.byte_level = false;
  const BpeModel model(std::move(vocabulary), merges, options, "test.json");
  BpeScratch scratch;
  Symbols symbols;
  for (const BpeSymbol& symbol : model.encode_symbols(word, scratch)) {
    symbols.ids.push_back(symbol.id);
    symbols.lengths.push_back(symbol.length);
  }
  return symbols;
}

bool splits_before_marks(const std::vector<std::string>& names, const BpeModel::NamedMerges& merges,
                         BpeOptions options) {
  Vocabulary vocabulary;
  for (size_t i = 0; i < names.size(); ++i) vocabulary.add(names[i], static_cast<int32_t>(i));
  options.byte_level = false;
  return BpeModel(std::move(vocabulary), merges, options, "test.json").splits_before_marks();
}

TEST(BpeCharacters, WordsMayBeCutBeforeMarksThatNoTokenReachesAcross) {
  const std::vector<std::string> names = {"<unk>", "\u2581", "a", "\u2581a", "\u2581\u2581", "a\u2581"};
  const BpeModel::NamedMerges at_start = {{"\u2581", "a"}, {"\u2581", "\u2581"}};
  const BpeModel::NamedMerges across = {{"\u2581", "a"}, {"a", "\u2581"}};
  EXPECT_TRUE(splits_before_marks(names, at_start, {.unk_id = 0}));
  EXPECT_FALSE(splits_before_marks(names, across, {.unk_id = 0}));
  EXPECT_FALSE(splits_before_marks(names, at_start, {}));
  EXPECT_FALSE(splits_before_marks(names, at_start, {.ignore_merges = true, .unk_id = 0}));
  EXPECT_FALSE(splits_before_marks(names, at_start, {.whole_words = {"a"}, .unk_id = 0}));
  EXPECT_FALSE(splits_before_marks({"<unk>", "a"}, {}, {.unk_id = 0}));
}

TEST(BpeCharacters, AWordStartsAsItsCharacters) {
  const auto symbols =
      encode({"\u4f60", "\u597d", "a", "\u4f60\u597d"}, {{"\u4f60", "\u597d"}}, {}, "a\u4f60\u597d\u4f60");
  EXPECT_EQ(symbols.ids, (Ids{2, 3, 0}));
  EXPECT_EQ(symbols.lengths, (std::vector<uint32_t>{1, 6, 3}));
}

TEST(BpeCharacters, AnUnknownCharacterFallsBackToAllOfItsBytes) {
  const std::vector<std::string> names = {"a", "<0xC3>", "<0xA9>"};
  const auto symbols = encode(names, {}, {.byte_fallback = true}, "a\u00e9");
  EXPECT_EQ(symbols.ids, (Ids{0, 1, 2}));
  EXPECT_EQ(symbols.lengths, (std::vector<uint32_t>{1, 1, 1}));
  EXPECT_EQ(encode(names, {}, {.byte_fallback = true}, "\u00e8a").ids, Ids{0}) << "a byte is missing";
}

TEST(BpeCharacters, UnknownCharactersBecomeOneUnkOrOneEach) {
  const std::vector<std::string> names = {"a", "?"};
  EXPECT_EQ(encode(names, {}, {.unk_id = 1}, "axya").ids, (Ids{0, 1, 1, 0}));
  const auto fused = encode(names, {}, {.unk_id = 1, .fuse_unk = true}, "axy\u00e9a");
  EXPECT_EQ(fused.ids, (Ids{0, 1, 0}));
  EXPECT_EQ(fused.lengths, (std::vector<uint32_t>{1, 4, 1}));
}

TEST(BpeCharacters, AnUnkWaitsBehindTheBytesThatFollowIt) {
  const std::vector<std::string> names = {"a", "?", "<0x62>"};
  const BpeOptions options{.unk_id = 1, .fuse_unk = true, .byte_fallback = true};
  const auto symbols = encode(names, {}, options, "xbya");
  EXPECT_EQ(symbols.ids, (Ids{2, 1, 0}));
  EXPECT_EQ(symbols.lengths, (std::vector<uint32_t>{1, 2, 1}));
}

TEST(BpeCharacters, AnUnkThatTheVocabularyLacksIsAnErrorOnceItIsNeeded) {
  const BpeOptions options{.missing_unk = "<unk>"};
  EXPECT_EQ(encode({"a"}, {}, options, "a").ids, Ids{0});
  EXPECT_THROW(encode({"a"}, {}, options, "ab"), DataError);
}

TEST(BpeCharacters, PrefixAndSuffixMarkInnerAndLastCharacters) {
  const std::vector<std::string> names = {"a", "##b", "##c</w>", "ab", "a</w>", "abc</w>"};
  const BpeOptions options{.continuing_subword_prefix = "##", .end_of_word_suffix = "</w>"};
  EXPECT_EQ(encode(names, {}, options, "abc").ids, (Ids{0, 1, 2}));
  EXPECT_EQ(encode(names, {{"a", "##b"}, {"ab", "##c</w>"}}, options, "abc").ids, Ids{5});
  EXPECT_EQ(encode(names, {}, options, "a").ids, Ids{4});
  EXPECT_THROW(encode(names, {{"a", "a"}}, options, "a"), DataError) << "no prefix to leave out";
}

TEST(BpeCharacters, AWholeWordOfTheVocabularyGoesFirstIfToldSo) {
  EXPECT_EQ(encode({"a", "b", "ab"}, {}, {.ignore_merges = true}, "ab").ids, Ids{2});
  EXPECT_EQ(encode({"a", "b", "ab"}, {}, {}, "ab").ids, (Ids{0, 1}));
}

}  // namespace
}  // namespace apus::data
