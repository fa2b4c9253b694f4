#include "data/pretokenize_text.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/older_unicode.h"

namespace apus::data {
namespace {

using Words = std::vector<std::string>;

Words words_of(const PreTokenizer& step, const std::string& text) {
  const AlignedText tracked = AlignedText::track(text, 0);
  Pieces with_origin;
  with_origin.reset(tracked.text, &tracked.origin);
  step.apply(with_origin);
  Pieces pieces;
  pieces.reset(text, nullptr);
  pieces.starts_text = true;
  step.apply(pieces);
  Words words;
  for (const ByteRange& range : pieces.ranges) words.emplace_back(pieces.piece(range));
  EXPECT_EQ(pieces.text, with_origin.text);
  EXPECT_EQ(pieces.ranges, with_origin.ranges);
  EXPECT_TRUE(text.empty() || with_origin.origin->size() == with_origin.text.size());
  return words;
}

Words matches(const PatternFinder& finder, const std::string& text) {
  std::vector<PatternPart> parts;
  finder(text, parts);
  Words words;
  uint32_t covered = 0;
  for (const PatternPart& part : parts) {
    EXPECT_EQ(part.range.begin, covered);
    covered = part.range.end;
    if (part.is_match) words.push_back(text.substr(part.range.begin, part.range.end - part.range.begin));
  }
  EXPECT_EQ(covered, text.size());
  return words;
}

TEST(FindCharacters, FindsEachByItself) {
  EXPECT_EQ(matches(find_characters(is_digits_number), "a12\u2167\u00bd\u0663b"),
            (Words{"1", "2", "\u2167", "\u00bd", "\u0663"}));
  EXPECT_EQ(matches(find_characters(is_older_punctuation), "a.b\u3002+$\u20ac\u00a1"),
            (Words{".", "\u3002", "+", "$", "\u00a1"}));
  EXPECT_EQ(matches(find_characters(is_digits_number), "abc"), Words{});
}

TEST(FindWords, SplitsWordsFromOtherCharacters) {
  EXPECT_EQ(matches(find_words(), "a1_ b.\u200d!\u2460 \u00b2"),
            (Words{"a1_", "b", ".", "\u200d", "!\u2460", "\u00b2"}));
  EXPECT_EQ(matches(find_words(), " \u3000"), Words{});
}

TEST(Metaspace, MarksSpacesAndTheStart) {
  const Metaspace step({});
  EXPECT_EQ(words_of(step, "a b"), (Words{"\u2581a", "\u2581b"}));
  EXPECT_EQ(words_of(step, " a  b"), (Words{"\u2581a", "\u2581", "\u2581b"}));
  EXPECT_EQ(words_of(step, "\u2581a"), Words{"\u2581a"});
  EXPECT_EQ(words_of(step, ""), Words{});
  EXPECT_EQ(words_of(step, "a\nb"), Words{"\u2581a\nb"});
}

TEST(Metaspace, NeverAndFirstSchemesLeaveTheStartAlone) {
  const Metaspace never({.prepend = MetaspacePrepend::kNever});
  EXPECT_EQ(words_of(never, "a b"), (Words{"a", "\u2581b"}));
  const Metaspace first({.prepend = MetaspacePrepend::kFirst, .split = false});
  EXPECT_TRUE(first.asks_for_start());
  EXPECT_FALSE(never.asks_for_start());
  EXPECT_EQ(words_of(first, "a b"), Words{"\u2581a\u2581b"});
  Pieces later;
  later.reset("a b", nullptr);
  first.apply(later);
  EXPECT_EQ(later.text, "a\u2581b");
}

TEST(Metaspace, KnowsTheStartOfTheTextByItsOrigin) {
  const Metaspace first({.prepend = MetaspacePrepend::kFirst, .split = false});
  const AlignedText at_start = AlignedText::track("a", 0);
  const AlignedText behind = AlignedText::track("a", 3);
  Pieces pieces;
  pieces.reset(at_start.text, &at_start.origin);
  first.apply(pieces);
  EXPECT_EQ(pieces.text, "\u2581a");
  EXPECT_EQ((*pieces.origin)[0], (ByteRange{0, 1}));
  pieces.reset(behind.text, &behind.origin);
  first.apply(pieces);
  EXPECT_EQ(pieces.text, "a");
}

TEST(FixedLength, CountsCharacters) {
  EXPECT_EQ(words_of(FixedLength(2), "a\u4e2d\u00e9xy"), (Words{"a\u4e2d", "\u00e9x", "y"}));
  EXPECT_EQ(words_of(FixedLength(9), "abc"), Words{"abc"});
  EXPECT_EQ(words_of(FixedLength(1), "a\u4e2d"), (Words{"a", "\u4e2d"}));
}

TEST(SpellBytes, SpellsPiecesAndKeepsTheirCuts) {
  Pieces pieces;
  pieces.reset("a \u00e9", nullptr);
  pieces.ranges = {{0, 1}, {1, 4}};
  SpellBytes().apply(pieces);
  ASSERT_EQ(pieces.ranges.size(), 2U);
  EXPECT_EQ(pieces.piece(pieces.ranges[0]), "a");
  EXPECT_EQ(pieces.piece(pieces.ranges[1]), "\u0120\u00c3\u00a9");
}

TEST(SplitBeforeMarks, CutsWhereAMarkFollowsAnotherCharacter) {
  const SplitBeforeMarks step;
  EXPECT_EQ(words_of(step, "\u2581a\u2581\u2581bc\u2581"), (Words{"\u2581a", "\u2581\u2581bc", "\u2581"}));
  EXPECT_EQ(words_of(step, "\u2581\u2581"), Words{"\u2581\u2581"});
  EXPECT_EQ(words_of(step, "ab"), Words{"ab"});
  EXPECT_EQ(words_of(step, ""), Words{});
}

TEST(SplitBeforeMarks, KeepsTheCutsThatAreThere) {
  Pieces pieces;
  pieces.reset("a\u2581b\u2581", nullptr);
  pieces.ranges = {{0, 1}, {1, 8}};
  SplitBeforeMarks().apply(pieces);
  EXPECT_EQ(pieces.ranges, (std::vector<ByteRange>{{0, 1}, {1, 5}, {5, 8}}));
}

TEST(SequencePreTokenizer, NeedsOriginsWhereALaterStepAsksForTheStart) {
  const auto with = [](bool first_asks, bool second_asks) {
    const auto scheme = [](bool asks) { return asks ? MetaspacePrepend::kFirst : MetaspacePrepend::kNever; };
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(std::make_unique<Metaspace>(MetaspaceOptions{.prepend = scheme(first_asks)}));
    steps.push_back(std::make_unique<Metaspace>(MetaspaceOptions{.prepend = scheme(second_asks)}));
    return SequencePreTokenizer(std::move(steps)).needs_origin();
  };
  EXPECT_FALSE(with(true, false));
  EXPECT_TRUE(with(false, true));
  EXPECT_FALSE(with(false, false));
}

TEST(IsolateStrings, TakesTheLongestAtTheLeftmostPlace) {
  const IsolateStrings step({"<a", "<ab>", "b", "\u4e2d"});
  EXPECT_EQ(words_of(step, "x<ab>y<abz\u4e2d\u4e2d"),
            (Words{"x", "<ab>", "y", "<a", "b", "z", "\u4e2d", "\u4e2d"}));
  EXPECT_EQ(words_of(step, "xyz"), Words{"xyz"});
  EXPECT_EQ(words_of(step, ""), Words{});
}

}  // namespace
}  // namespace apus::data
