#include "data/pretokenize_regex.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<PatternPart> parts;
  find_regex(pattern, "test.json")(text, parts);
  std::vector<std::string> out;
  for (const PatternPart& part : parts)
    if (part.is_match) out.push_back(text.substr(part.range.begin, part.range.end - part.range.begin));
  return out;
}

using Strings = std::vector<std::string>;

TEST(RewriteForPcre2, WritesClassesOut) {
  EXPECT_EQ(rewrite_for_pcre2(R"(\h)", ""), R"([\x{30}-\x{39}\x{41}-\x{46}\x{61}-\x{66}])");
  EXPECT_EQ(rewrite_for_pcre2(R"([^\h_])", ""), R"([^\x{30}-\x{39}\x{41}-\x{46}\x{61}-\x{66}_])");
  EXPECT_EQ(rewrite_for_pcre2(R"(\u4e00\n\\s)", ""), R"(\x{4e00}\n\\s)");
  EXPECT_NE(rewrite_for_pcre2(R"(\p{Thai}\P{Thai}\p{^Thai})", "").find("Thai}\\P{"), std::string::npos);
}

TEST(FindRegex, TakesScriptsForThemselvesNotForTheirExtensions) {
  // U+32FF and U+3001 are Common, with Han among their extensions; U+31350 is Han since Unicode 15.
  EXPECT_EQ(matches(R"(\p{Han}+)", "a\u4e2d\u32ff\U00031350\u3001"), (Strings{"\u4e2d", "\U00031350"}));
  EXPECT_EQ(matches(R"(\p{Hiragana}+)", "\u304b\u30fc\u3042"), (Strings{"\u304b", "\u3042"}));
  EXPECT_EQ(matches(R"(\P{Thai}+)", "a\u0e01b"), (Strings{"a", "b"}));
  EXPECT_EQ(matches(R"([^\p{^Thai}x]+)", "ax\u0e01b"), Strings{"\u0e01"});
}

TEST(FindRegex, HasTheLibrarysWords) {
  // Letter numbers and Latin-1's are in words, circled numbers and the joiners are not.
  EXPECT_EQ(matches(R"(\w+)", "\u00b2\u2167_\u0301\u2460\u200d1\u00be"),
            (Strings{"\u00b2\u2167_\u0301", "1\u00be"}));
  EXPECT_EQ(matches(R"([\w]+)", "a\u00b2\u2167"), (Strings{"a", "\u2167"}));
  EXPECT_EQ(matches(R"([^\w]+)", "a\u00b2"), Strings{"\u00b2"});
  EXPECT_EQ(matches(R"(\W)", "a-\u4e2d"), Strings{"-"});
  EXPECT_EQ(matches(R"(\b.)", "\u4e2da \u00e9-"), (Strings{"\u4e2d", " ", "\u00e9", "-"}));
  EXPECT_EQ(matches(R"(\B.)", "ab -"), (Strings{"b", "-"}));
}

TEST(RewriteForPcre2, RefusesWhatTheDialectsDisagreeOn) {
  for (const char* pattern : {R"([a&&b])", R"([[:alpha:]])", R"([a[b]])", R"([]a])", R"(\p{L)", R"(\u12)"})
    EXPECT_THROW(rewrite_for_pcre2(pattern, "f"), NotSupported) << pattern;
}

TEST(FindRegex, UsesTheLibrarysUnicodeVersion) {
  // U+1C89 is a letter since Unicode 16; U+180E has not been white space since 6.3.
  EXPECT_EQ(matches(R"(\p{L}+)", "a\u1c89b."), Strings{"a\u1c89b"});
  EXPECT_EQ(matches(R"(\s)", "\u180e\u0085"), Strings{"\u0085"});
  EXPECT_EQ(matches(R"([^\S\n]+)", "a \t\n"), Strings{" \t"});
  EXPECT_EQ(matches(R"(\P{L}+)", "a1-b"), Strings{"1-"});
}

TEST(FindRegex, CoversTheTextWithMatchesAndGaps) {
  std::vector<PatternPart> parts;
  find_regex("b+", "f")("abbcb", parts);
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_FALSE(parts[0].is_match);
  EXPECT_TRUE(parts[1].is_match);
  EXPECT_EQ(parts[1].range, (ByteRange{1, 3}));
  EXPECT_EQ(parts[2].range, (ByteRange{3, 4}));
  EXPECT_EQ(parts[3].range, (ByteRange{4, 5}));
}

TEST(FindRegex, PassesOverEmptyMatches) {
  EXPECT_EQ(matches("x*", "\u4e2dxx"), (Strings{"", "xx"}));
}

TEST(FindRegex, AnchorsAtEveryLine) {
  EXPECT_EQ(matches("^a", "a\na"), (Strings{"a", "a"}));
}

TEST(FindRegex, NamesThePatternThatDoesNotCompile) {
  try {
    find_regex("(a", "folder/tokenizer.json");
    FAIL() << "compiled";
  } catch (const NotSupported& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("folder/tokenizer.json"), std::string::npos) << message;
    EXPECT_NE(message.find("(a"), std::string::npos) << message;
  }
}

TEST(FindRegex, GivesUpOnPatternsThatExplode) {
  std::vector<PatternPart> parts;
  EXPECT_THROW(find_regex("(a|a)+[bc]", "f")(std::string(40, 'a'), parts), NotSupported);
}

}  // namespace
}  // namespace apus::data
