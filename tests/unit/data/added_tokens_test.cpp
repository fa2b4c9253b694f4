#include "data/added_tokens.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace apus::data {
namespace {

using Parts = std::vector<std::pair<std::string, int32_t>>;

AddedTokenMatcher matcher_of(const std::vector<AddedToken>& tokens) {
  AddedTokenMatcher matcher;
  for (const AddedToken& token : tokens) matcher.add(token.content, token);
  return matcher;
}

Parts split(const AddedTokenMatcher& matcher, const std::string& text) {
  std::vector<TextPart> parts;
  matcher.split(text, parts);
  Parts out;
  for (const TextPart& part : parts)
    out.emplace_back(text.substr(part.range.begin, part.range.end - part.range.begin), part.id);
  return out;
}

TEST(AddedTokenMatcher, LeavesTextWithoutTokensWhole) {
  const auto matcher = matcher_of({{.id = 1, .content = "<s>"}});
  EXPECT_EQ(split(matcher, "a < b"), (Parts{{"a < b", -1}}));
  EXPECT_EQ(split(matcher, ""), Parts{});
  EXPECT_TRUE(AddedTokenMatcher().empty());
  EXPECT_EQ(split(AddedTokenMatcher(), "x"), (Parts{{"x", -1}}));
}

TEST(AddedTokenMatcher, TakesTheLeftmostAndThereTheLongest) {
  const auto matcher = matcher_of(
      {{.id = 1, .content = "<ab>"}, {.id = 2, .content = "<ab><c>"}, {.id = 3, .content = "b><"}});
  EXPECT_EQ(split(matcher, "x<ab><c>y<ab>z"),
            (Parts{{"x", -1}, {"<ab><c>", 2}, {"y", -1}, {"<ab>", 1}, {"z", -1}}));
  EXPECT_EQ(split(matcher, "<ab><d>"), (Parts{{"<ab>", 1}, {"<d>", -1}}));
  EXPECT_EQ(split(matcher, "b><ab>"), (Parts{{"b><", 3}, {"ab>", -1}}));
}

TEST(AddedTokenMatcher, FirstOfTwoWithOnePatternWins) {
  AddedTokenMatcher matcher;
  matcher.add("same", {.id = 5, .content = "same"});
  matcher.add("same", {.id = 6, .content = "other"});
  matcher.add("", {.id = 7, .content = ""});
  EXPECT_EQ(split(matcher, "same"), (Parts{{"same", 5}}));
}

TEST(AddedTokenMatcher, SingleWordsWantNoWordCharacterBeside) {
  const auto matcher = matcher_of({{.id = 1, .content = "solo", .single_word = true}});
  EXPECT_EQ(split(matcher, "solo, solo"), (Parts{{"solo", 1}, {", ", -1}, {"solo", 1}}));
  EXPECT_EQ(split(matcher, "solos xsolo solo_"), (Parts{{"solos xsolo solo_", -1}}));
  EXPECT_EQ(split(matcher, "\u00e9solo"), (Parts{{"\u00e9solo", -1}}));
}

TEST(AddedTokenMatcher, StripsWhiteSpaceOnTheSidesAskedFor) {
  const auto matcher = matcher_of({{.id = 1, .content = "<l>", .lstrip = true},
                                   {.id = 2, .content = "<r>", .rstrip = true},
                                   {.id = 3, .content = "<b>", .lstrip = true, .rstrip = true}});
  EXPECT_EQ(split(matcher, "a \t<l> b"), (Parts{{"a", -1}, {" \t<l>", 1}, {" b", -1}}));
  EXPECT_EQ(split(matcher, "a <r>\u3000\nb"), (Parts{{"a ", -1}, {"<r>\u3000\n", 2}, {"b", -1}}));
  EXPECT_EQ(split(matcher, " <b> "), (Parts{{" <b> ", 3}}));
  // The first took the space between them.
  EXPECT_EQ(split(matcher, "<r> <l>"), (Parts{{"<r> ", 2}, {"<l>", 1}}));
}

TEST(AddedTokenMatcher, ATokenOfStrippedSpaceAloneIsLeftOut) {
  const auto matcher =
      matcher_of({{.id = 1, .content = "<r>", .rstrip = true}, {.id = 2, .content = " ", .lstrip = true}});
  EXPECT_EQ(split(matcher, "<r> x"), (Parts{{"<r> ", 1}, {"x", -1}}));
}

TEST(AddedTokenMatcher, FindsTokensThatStartDifferently) {
  const auto matcher = matcher_of({{.id = 1, .content = "[x]"}, {.id = 2, .content = "\u4e2d\u6587"}});
  EXPECT_EQ(split(matcher, "\u4e2d[x]\u4e2d\u6587"),
            (Parts{{"\u4e2d", -1}, {"[x]", 1}, {"\u4e2d\u6587", 2}}));
}

}  // namespace
}  // namespace apus::data
