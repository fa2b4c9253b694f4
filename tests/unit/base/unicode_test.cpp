#include "apus/base/unicode.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

TEST(Unicode, EveryCodePointRoundTrips) {
  std::string text;
  std::u32string points;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c < 0xD800 || c > 0xDFFF) points += c;
  }
  text = to_utf8(points);
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_EQ(utf8_length(text), points.size());
  EXPECT_TRUE(to_code_points(text) == points);
}

TEST(Unicode, DecodesEveryLength) {
  EXPECT_EQ(to_utf8(U"a\u00e9\u20ac\U0001F600"), "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  const Utf8Step step = decode_utf8("x\xF0\x9F\x98\x80", 1);
  EXPECT_TRUE(step.valid);
  EXPECT_EQ(step.code_point, U'\U0001F600');
  EXPECT_EQ(step.length, 4u);
}

TEST(Unicode, RefusesWhatIsNotUtf8) {
  for (const char* text : {"\xC0\x80", "\xE0\x80\x80", "\xF0\x80\x80\x80",  // overlong
                           "\xED\xA0\x80", "\xF4\x90\x80\x80",              // surrogate, too large
                           "\x80", "\xFF", "\xC3", "\xE2\x82", "\xC3("}) {
    EXPECT_FALSE(is_valid_utf8(text));
    EXPECT_FALSE(decode_utf8(text, 0).valid);
  }
  EXPECT_EQ(valid_utf8_prefix("ab\xFF"), 2u);
}

// As Python's bytes.decode(errors="replace").
// The prefix is found several bytes at a time: it must equal what single steps find, wherever a text breaks.
TEST(Unicode, FindsTheValidPrefixThatSingleStepsFind) {
  const std::string text =
      "some ASCII, \u00e9\u00df\u0436, \u4e2d\u6587\ud55c\ue000\uffdc \U0001F600 and ASCII again";
  const auto by_steps = [](const std::string& broken) {
    size_t at = 0;
    while (at < broken.size() && decode_utf8(broken, at).valid) at += decode_utf8(broken, at).length;
    return at;
  };
  EXPECT_EQ(valid_utf8_prefix(text), text.size());
  for (size_t place = 0; place < text.size(); ++place) {
    EXPECT_EQ(valid_utf8_prefix(text.substr(0, place)), by_steps(text.substr(0, place)));
    EXPECT_EQ(valid_utf8_prefix(text.substr(place)), by_steps(text.substr(place)));
    for (int byte = 0; byte < 256; ++byte) {
      std::string broken = text;
      broken[place] = static_cast<char>(byte);
      ASSERT_EQ(valid_utf8_prefix(broken), by_steps(broken)) << place << " " << byte;
    }
  }
}

TEST(Unicode, ReplacesTheLongestBrokenPrefixOnce) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\xE2\x82"
                                 "b"),
            "a" + r + "b");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xC3\xC3\xA9"), r + "\xC3\xA9");
  EXPECT_EQ(replace_invalid_utf8("plain"), "plain");
  EXPECT_EQ(utf8_length("\xED\xA0\x80"), 3u);
  EXPECT_TRUE(to_code_points("\xFFz") == U"\uFFFDz");
}

TEST(Unicode, WritesTheReplacementForImpossibleCodePoints) {
  EXPECT_EQ(to_utf8(std::u32string{0xD800, 0x110000}), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Unicode, FindsTheTailThatMoreBytesCouldComplete) {
  EXPECT_EQ(incomplete_utf8_tail("abc"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("abc\xC3"), 1u);
  EXPECT_EQ(incomplete_utf8_tail("\xE2\x82"), 2u);
  EXPECT_EQ(incomplete_utf8_tail("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_utf8_tail("\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xED\xA0"), 0u) << "no byte can complete a surrogate";
  EXPECT_EQ(incomplete_utf8_tail("\xFF"), 0u);
  EXPECT_EQ(incomplete_utf8_tail(""), 0u);
}

}  // namespace
}  // namespace apus
