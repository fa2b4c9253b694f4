#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/bpe.h"

namespace apus::data {
namespace {

using Ids = std::vector<int32_t>;
using Pair = std::pair<std::string, std::string>;

// Raw bytes of all 256 bytes and of random merges of a few of them; ranks in no order of length, so that a
// merge's result may come before its parts, and some results have several pairs that give them.
struct RandomModel {
  std::vector<std::string> tokens;
  std::vector<Pair> merges;

  explicit RandomModel(std::mt19937& random) {
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    std::vector<std::string> parts;
    for (const char byte : std::string("abcde\xE4\xB8\xAD ", 9)) parts.emplace_back(1, byte);
    std::set<std::string> known(tokens.begin(), tokens.end());
    std::set<Pair> pairs;
    while (merges.size() < 300) {
      const Pair pair(parts[random() % parts.size()], parts[random() % parts.size()]);
      const std::string whole = pair.first + pair.second;
      if (whole.size() > 12 || !pairs.insert(pair).second) continue;
      merges.push_back(pair);
      if (!known.insert(whole).second) continue;
      tokens.push_back(whole);
      parts.push_back(whole);
    }
    std::shuffle(merges.begin(), merges.end(), random);
  }

  static std::string spelt(const std::string& bytes) {
    std::string name;
    append_byte_level(name, bytes);
    return name;
  }

  BpeModel build(BpeOptions options = {}) const {
    Vocabulary vocabulary;
    for (size_t id = 0; id < tokens.size(); ++id) vocabulary.add(spelt(tokens[id]), static_cast<int32_t>(id));
    std::vector<Pair> names;
    for (const auto& [left, right] : merges) names.emplace_back(spelt(left), spelt(right));
    return BpeModel(std::move(vocabulary), BpeModel::NamedMerges(names.begin(), names.end()), options,
                    "test");
  }

  // The definition: merge the lowest rank, leftmost first, until nothing merges.
  Ids reference(const std::string& word) const {
    std::vector<std::string> parts;
    for (const char byte : word) parts.emplace_back(1, byte);
    for (;;) {
      size_t best_rank = merges.size(), best = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i)
        for (size_t rank = 0; rank < best_rank; ++rank)
          if (merges[rank].first == parts[i] && merges[rank].second == parts[i + 1])
            best_rank = rank, best = i;
      if (best_rank == merges.size()) break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    Ids ids;
    for (const std::string& part : parts)
      ids.push_back(static_cast<int32_t>(std::find(tokens.begin(), tokens.end(), part) - tokens.begin()));
    return ids;
  }
};

std::string random_word(std::mt19937& random, size_t length) {
  const std::string letters("abcde\xE4\xB8\xAD z", 10);
  std::string word;
  while (word.size() < length) word += letters[random() % letters.size()];
  return word;
}

Ids ids_of(const std::vector<BpeSymbol>& symbols) {
  Ids ids;
  for (const BpeSymbol& symbol : symbols) ids.push_back(symbol.id);
  return ids;
}

TEST(BpeWords, EqualTheDefinitionAndThePathWithPlaces) {
  std::mt19937 random(11);
  for (int round = 0; round < 3; ++round) {
    const RandomModel random_model(random);
    const BpeModel model = random_model.build();
    BpeScratch scratch;
    BpeScratch other;
    for (int i = 0; i < 300; ++i) {
      const std::string word = random_word(random, 1 + random() % (i % 10 == 0 ? 130 : 24));
      const Ids expected = random_model.reference(word);
      Ids first;
      Ids again;
      model.encode(word, scratch, first);
      model.encode(word, scratch, again);  // out of the cache
      ASSERT_EQ(first, expected) << word;
      ASSERT_EQ(again, expected) << word;
      ASSERT_EQ(ids_of(model.encode_symbols(word, other)), expected) << word;
    }
  }
}

TEST(BpeWords, OfATextAreTheWordsOneByOne) {
  std::mt19937 random(12);
  const RandomModel random_model(random);
  const BpeModel model = random_model.build();
  BpeScratch scratch;
  BpeScratch single;
  for (int round = 0; round < 20; ++round) {
    std::string text;
    std::vector<ByteRange> words;
    Ids expected = {-5};
    const size_t count = random() % 400;
    for (size_t i = 0; i < count; ++i) {
      const std::string word = random_word(random, 1 + random() % (i % 20 == 0 ? 300 : 9));
      words.push_back({static_cast<uint32_t>(text.size()), static_cast<uint32_t>(text.size() + word.size())});
      text += word;
      for (const int32_t id : ids_of(model.encode_symbols(word, single))) expected.push_back(id);
    }
    Ids ids = {-5};
    model.encode_words(text, words, scratch, ids);
    ASSERT_EQ(ids, expected) << round;
  }
}

TEST(BpeWords, WithoutSomeBytesGoTheSlowWay) {
  std::mt19937 random(13);
  RandomModel random_model(random);
  random_model.tokens.erase(random_model.tokens.begin() + 'z');  // no merge uses it
  const BpeModel model = random_model.build();
  BpeScratch scratch;
  Ids ids;
  model.encode("z", scratch, ids);
  EXPECT_EQ(ids, Ids{});
  model.encode("azb", scratch, ids);
  Ids expected = ids_of(model.encode_symbols("azb", scratch));
  EXPECT_EQ(ids, expected);
}

TEST(BpeWords, TakeAWholeWordOfTheVocabularyWhereMergesAreIgnored) {
  std::mt19937 random(14);
  RandomModel random_model(random);
  random_model.tokens.push_back("zzz");  // no merge leads to it
  BpeScratch scratch;
  Ids ids;
  random_model.build().encode("zzz", scratch, ids);
  EXPECT_EQ(ids, Ids(3, 'z'));
  BpeScratch fresh;
  ids.clear();
  random_model.build({.ignore_merges = true}).encode("zzz", fresh, ids);
  EXPECT_EQ(ids, Ids{static_cast<int32_t>(random_model.tokens.size()) - 1});
}

// Quadratic time would be minutes here.
TEST(BpeWords, OfAMillionBytesTakeNoQuadraticTime) {
  std::mt19937 random(15);
  const RandomModel random_model(random);
  const BpeModel model = random_model.build();
  const std::string word = random_word(random, 1'000'000);
  BpeScratch scratch;
  Ids ids;
  model.encode(word, scratch, ids);
  std::string spelt;
  for (const int32_t id : ids) spelt += random_model.tokens[static_cast<size_t>(id)];
  EXPECT_EQ(spelt, word);
  EXPECT_LT(ids.size(), word.size());
}

}  // namespace
}  // namespace apus::data
