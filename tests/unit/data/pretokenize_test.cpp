#include "data/pretokenize.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/older_unicode.h"
#include "data/pretokenize_text.h"

namespace apus::data {
namespace {

using Words = std::vector<std::string>;

Words words_of(const PreTokenizer& step, const std::string& text) {
  Pieces pieces;
  pieces.reset(text, nullptr);
  step.apply(pieces);
  Words words;
  for (const ByteRange& range : pieces.ranges) words.emplace_back(pieces.piece(range));
  return words;
}

Words split_literal(const std::string& text, PatternSplitOptions options) {
  return words_of(PatternSplit(find_literal("-"), options), text);
}

TEST(PatternSplit, TreatsMatchesAsItsBehaviorSays) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(split_literal(text, {.behavior = SplitBehavior::kRemoved}), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(split_literal(text, {.behavior = SplitBehavior::kIsolated}),
            (Words{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split_literal(text, {.behavior = SplitBehavior::kMergedWithPrevious}),
            (Words{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split_literal(text, {.behavior = SplitBehavior::kMergedWithNext}),
            (Words{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split_literal(text, {.behavior = SplitBehavior::kContiguous}),
            (Words{"the", "-", "final", "--", "countdown"}));
}

TEST(PatternSplit, InvertSwapsMatchesAndGaps) {
  EXPECT_EQ(split_literal("a-b", {.behavior = SplitBehavior::kRemoved, .invert = true}), (Words{"-"}));
  EXPECT_EQ(split_literal("---", {.behavior = SplitBehavior::kRemoved}), Words{});
}

TEST(PatternSplit, FindsNumbersOfEveryScript) {
  const PatternSplit each(find_characters(is_digits_number), {});
  EXPECT_EQ(words_of(each, "a12\u0663b\u00bd"), (Words{"a", "1", "2", "\u0663", "b", "\u00bd"}));
  const PatternSplit runs(find_characters(is_digits_number), {.behavior = SplitBehavior::kContiguous});
  EXPECT_EQ(words_of(runs, "a12b"), (Words{"a", "12", "b"}));
}

TEST(PrefixSpace, GoesBeforeEveryPieceThatHasNone) {
  Pieces pieces;
  const std::string text = "ab c";
  const AlignedText tracked = AlignedText::track(text, 0);
  pieces.reset(text, &tracked.origin);
  pieces.ranges = {{0, 2}, {2, 4}};
  PrefixSpace().apply(pieces);
  ASSERT_EQ(pieces.ranges.size(), 2U);
  EXPECT_EQ(pieces.piece(pieces.ranges[0]), " ab");
  EXPECT_EQ(pieces.piece(pieces.ranges[1]), " c");
  ASSERT_NE(pieces.origin, nullptr);
  const std::vector<ByteRange> expected = {{0, 1}, {0, 1}, {1, 2}, {2, 3}, {3, 4}};
  EXPECT_EQ(*pieces.origin, expected);
}

TEST(SequencePreTokenizer, RunsItsStepsOnThePiecesOfTheLast) {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(std::make_unique<PatternSplit>(find_characters(is_digits_number), PatternSplitOptions{}));
  steps.push_back(std::make_unique<PrefixSpace>());
  EXPECT_EQ(words_of(SequencePreTokenizer(std::move(steps)), "a1"), (Words{" a", " 1"}));
}

TEST(Pieces, AnEmptyTextHasNone) {
  EXPECT_EQ(words_of(KnownSplit(split_qwen2), ""), Words{});
  EXPECT_EQ(words_of(PrefixSpace(), ""), Words{});
}

}  // namespace
}  // namespace apus::data
