#include "data/bpe.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

using Ids = std::vector<int32_t>;

// Letters a to d, and merges among them whose ranks are in no order of length.
const std::vector<std::pair<std::string, std::string>> kMerges = {
    {"a", "b"}, {"b", "c"}, {"ab", "c"}, {"a", "a"}, {"aa", "aa"}, {"c", "d"}, {"ab", "ab"}, {"aaaa", "ab"}};

Vocabulary vocabulary_of(const std::vector<std::string>& extra = {}) {
  Vocabulary vocabulary;
  int32_t id = 0;
  for (const char* letter : {"a", "b", "c", "d"}) vocabulary.add(letter, id++);
  for (const auto& [left, right] : kMerges) vocabulary.add(left + right, id++);
  for (const std::string& name : extra) vocabulary.add(name, id++);
  return vocabulary;
}

BpeModel model_of(BpeOptions options = {}, const std::vector<std::string>& extra = {}) {
  BpeModel::NamedMerges merges(kMerges.begin(), kMerges.end());
  return BpeModel(vocabulary_of(extra), merges, options, "test.json");
}

Ids encode(const BpeModel& model, const std::string& word) {
  BpeScratch scratch;
  Ids ids;
  model.encode(word, scratch, ids);
  return ids;
}

// The definition: merge the lowest rank, leftmost first, until nothing merges.
Ids reference(const std::string& word) {
  const Vocabulary vocabulary = vocabulary_of();
  std::vector<std::string> parts;
  for (const char letter : word) parts.emplace_back(1, letter);
  for (;;) {
    size_t best_rank = kMerges.size(), best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      for (size_t rank = 0; rank < best_rank; ++rank)
        if (kMerges[rank] == std::pair(parts[i], parts[i + 1])) best_rank = rank, best = i;
    if (best_rank == kMerges.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(*vocabulary.find(part));
  return ids;
}

TEST(BpeModel, EqualsTheDefinitionForShortAndLongWords) {
  const BpeModel model = model_of();
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string word;
    const size_t length = random() % (round % 4 == 0 ? 200 : 40);
    for (size_t i = 0; i < length; ++i) word += static_cast<char>('a' + random() % 4);
    ASSERT_EQ(encode(model, word), reference(word)) << word;
  }
}

TEST(BpeModel, StaysFastOnAWordOfAMillionBytes) {
  const BpeModel model = model_of();
  const Ids ids = encode(model, std::string(1'000'000, 'a'));
  EXPECT_EQ(ids, Ids(250'000, *model.vocabulary().find("aaaa")));
}

TEST(BpeModel, SymbolsCoverTheWord) {
  const BpeModel model = model_of();
  BpeScratch scratch;
  for (const std::string word : {"abcd", "aaaaab", ""}) {
    size_t length = 0;
    for (const BpeSymbol& symbol : model.encode_symbols(word, scratch)) length += symbol.length;
    EXPECT_EQ(length, word.size());
  }
}

TEST(BpeModel, GivesTheSameFromItsCache) {
  const BpeModel model = model_of();
  BpeScratch scratch;
  for (const std::string word : {"abcabcd", "aaaaab", "a", "dddddddddddddd", ""}) {
    Ids first, second;
    model.encode(word, scratch, first);
    model.encode(word, scratch, second);
    EXPECT_EQ(first, second);
    EXPECT_EQ(first, reference(word));
  }
}

TEST(BpeModel, IgnoreMergesTakesAWholeWordOfTheVocabulary) {
  EXPECT_EQ(encode(model_of({}, {"dad"}), "dad"), (Ids{3, 0, 3}));
  const BpeModel model = model_of({.ignore_merges = true, .unk_id = {}}, {"dad"});
  EXPECT_EQ(encode(model, "dad"), Ids{*model.vocabulary().find("dad")});
  EXPECT_EQ(encode(model, "dadd"), (Ids{3, 0, 3, 3}));
}

TEST(BpeModel, LeavesOutBytesItDoesNotKnowOrGivesUnk) {
  EXPECT_EQ(encode(model_of(), "a?b"), (Ids{4}));
  EXPECT_EQ(encode(model_of({.unk_id = 9}), "a??b"), (Ids{0, 9, 9, 1}));
  EXPECT_EQ(encode(model_of({.unk_id = 9, .fuse_unk = true}), "a??b?"), (Ids{0, 9, 1, 9}));
}

TEST(BpeModel, NamesTheMergeWhoseTokenIsMissing) {
  const BpeModel::NamedMerges merges = {{"a", "b"}, {"a", "d"}};
  try {
    BpeModel(vocabulary_of(), merges, {}, "test.json");
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("merge 1 needs the token 'ad'"), std::string::npos)
        << error.what();
  }
}

// Both forms of slots: ids of at most 20 bits, and above.
TEST(MergeTable, FindsWhatWasAdded) {
  constexpr int32_t kSmall = 1 << 20;
  for (const int32_t limit : {kSmall, kSmall + 1}) {
    MergeTable table(102, limit);
    for (int32_t i = 0; i < 100; ++i) table.add(i, i * 7, {static_cast<uint32_t>(i), i + 1000});
    table.add(limit - 1, limit - 1, {100, 5});
    table.add(3, 21, {101, 6});  // replaces
    for (int32_t i = 0; i < 100; ++i) EXPECT_EQ(table.find(i, i * 7).id, i == 3 ? 6 : i + 1000);
    EXPECT_EQ(table.find(3, 21).rank, 101U);
    EXPECT_EQ(table.find(limit - 1, limit - 1).id, 5);
    EXPECT_EQ(table.find(1, 8).rank, MergeTable::kNone);
    EXPECT_EQ(table.find(-1, -1).rank, MergeTable::kNone);
    EXPECT_EQ(table.find(1 + kSmall, 7).rank, MergeTable::kNone);
  }
}

TEST(MergeTable, KnowsResultsThatFollowTheirRanksAndOthers) {
  MergeTable table(10, 100);
  table.add(1, 2, {5, 4});
  table.add(1, 3, {6, 5});
  EXPECT_EQ(table.result_of(5), 4);
  EXPECT_EQ(table.result_of(6), 5);
  table.add(1, 4, {0, 70});
  EXPECT_EQ(table.result_of(0), 70);
  EXPECT_EQ(table.result_of(5), 4);
  EXPECT_EQ(table.result_of(6), 5);
}

TEST(MergeTable, HasNothingWhereNothingWasAdded) {
  const MergeTable empty(0, 1 << 20);
  for (int32_t i = 0; i < 1000; ++i) EXPECT_EQ(empty.find(i, i).rank, MergeTable::kNone);
  EXPECT_EQ(empty.find((1 << 20) - 1, (1 << 20) - 1).rank, MergeTable::kNone);
}

}  // namespace
}  // namespace apus::data
