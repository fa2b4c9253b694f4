#include "data/word_cache.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/bpe_vocabulary.h"

namespace apus::data {
namespace {

using Ids = std::vector<int32_t>;

WordCache::Key key(const std::string& word) {
  return WordCache::key_of(word + " and what follows it", 0, word.size());
}

// What is kept for a short word; {-1} if nothing is.
Ids find_short(WordCache& cache, const std::string& word) {
  std::array<int32_t, WordCache::kMaxShortTokens> out{};
  const int count = cache.find_short(key(word), WordCache::line_of(key(word)), out.data());
  return count < 0 ? Ids{-1} : Ids(out.begin(), out.begin() + count);
}

Ids find_long(const WordCache& cache, const std::string& word) {
  const auto found = cache.find_long(word);
  return {found.begin(), found.end()};
}

TEST(WordCache, KeepsShortWordsWithNoneToFourTokens) {
  WordCache cache;
  const std::vector<Ids> tokens = {{}, {0}, {kMaxTokenId}, {1, 2, 3}, {kMaxTokenId, 0, kMaxTokenId, 7}};
  for (size_t i = 0; i < tokens.size(); ++i) cache.store_short(key("word" + std::to_string(i)), tokens[i]);
  for (size_t i = 0; i < tokens.size(); ++i)
    EXPECT_EQ(find_short(cache, "word" + std::to_string(i)), tokens[i]);
  EXPECT_EQ(find_short(cache, "word5"), Ids{-1});
}

TEST(WordCache, TellsWordsOfZeroBytesApart) {
  WordCache cache;
  cache.store_short(key(std::string(1, '\0')), Ids{1});
  EXPECT_EQ(find_short(cache, std::string(1, '\0')), Ids{1});
  EXPECT_EQ(find_short(cache, std::string(2, '\0')), Ids{-1});
  EXPECT_EQ(find_short(cache, ""), Ids{-1});
}

TEST(WordCache, MakesTheSameKeyInsideATextAndAtItsEnd) {
  const std::string text = "some words, and words";
  EXPECT_EQ(WordCache::key_of(text, 5, 5), key("words"));
  EXPECT_EQ(WordCache::key_of(text, 16, 5), key("words"));
  EXPECT_EQ(WordCache::key_of("words", 0, 5), key("words"));
  EXPECT_EQ(WordCache::key_of(text, 0, 15), key(text.substr(0, 15)));
  EXPECT_NE(key("words"), key("word"));
}

TEST(WordCache, NeverMixesShortWordsUpWhenItForgets) {
  WordCache cache;
  constexpr int32_t kWords = 400'000;
  int32_t kept = 0;
  for (int32_t i = 0; i < kWords; ++i) cache.store_short(key("w" + std::to_string(i)), Ids{i, i / 2});
  for (int32_t i = 0; i < kWords; ++i) {
    const Ids found = find_short(cache, "w" + std::to_string(i));
    if (found == Ids{-1}) continue;
    ASSERT_EQ(found, (Ids{i, i / 2}));
    ++kept;
  }
  EXPECT_GT(kept, 100'000);
  EXPECT_LE(kept, 2 << 16);
}

TEST(WordCache, ForgetsTheShortWordThatWasAskedForLongestAgo) {
  WordCache cache;
  cache.store_short(key("asked for"), Ids{5});
  for (int32_t i = 0; i < 300'000; ++i) {
    cache.store_short(key(std::to_string(i)), Ids{i});
    ASSERT_EQ(find_short(cache, "asked for"), Ids{5}) << i;
  }
}

TEST(WordCache, KeepsLongWordsAndThoseOfManyTokens) {
  WordCache cache;
  const std::string longest(WordCache::kMaxWordBytes, 'x');
  const Ids many(WordCache::kMaxTokens, 9);
  cache.store_long(longest, many);
  cache.store_long("a few tokens too many", Ids{1, 2, 3, 4, 5});
  EXPECT_EQ(find_long(cache, longest), many);
  EXPECT_EQ(find_long(cache, "a few tokens too many"), (Ids{1, 2, 3, 4, 5}));
  EXPECT_EQ(find_long(cache, "a few tokens too mane"), Ids{});
  EXPECT_EQ(find_long(cache, ""), Ids{});
}

TEST(WordCache, LetsGoOfWhatIsTooLong) {
  WordCache cache;
  const std::string too_long(WordCache::kMaxWordBytes + 1, 'x');
  cache.store_long(too_long, Ids{1});
  cache.store_long("word", Ids(WordCache::kMaxTokens + 1, 1));
  EXPECT_EQ(find_long(cache, too_long), Ids{});
  EXPECT_EQ(find_long(cache, "word"), Ids{});
}

TEST(WordCache, StartsItsBufferOverAndNeverMixesLongWordsUp) {
  WordCache cache;
  const auto word = [](int32_t i) { return "a word of more bytes " + std::to_string(i); };
  for (int32_t i = 0; i < 100'000; ++i) {
    cache.store_long(word(i), Ids{i, i, i});
    ASSERT_EQ(find_long(cache, word(i)), (Ids{i, i, i}));
    const Ids before = find_long(cache, word(i / 2));
    ASSERT_TRUE(before.empty() || before == Ids(3, i / 2)) << i;
  }
}

}  // namespace
}  // namespace apus::data
