#include "data/pattern_of.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

using Json = nlohmann::json;

template <typename Read>
auto read(const std::string& text, Read&& read_it) {
  const Json json = Json::parse(text);
  return read_it(JsonView(json, "t.json"));
}

size_t matches(const std::string& pattern, const std::string& text) {
  const PatternFinder finder = read(R"({"pattern":)" + pattern + "}", pattern_of);
  std::vector<PatternPart> parts;
  finder(text, parts);
  size_t count = 0;
  for (const PatternPart& part : parts) count += part.is_match ? 1 : 0;
  return count;
}

TEST(PatternOf, StringsAreLiteralRegexesAreNot) {
  EXPECT_EQ(matches(R"({"String":"a."})", "a.ab"), 1U);
  EXPECT_EQ(matches(R"({"Regex":"a."})", "a.ab"), 2U);
}

TEST(PatternOf, AnEmptyStringStandsBetweenAllCharacters) {
  EXPECT_EQ(matches(R"({"String":""})", "\u4e2da"), 3U);
}

TEST(PatternOf, RefusesOtherPatterns) {
  EXPECT_THROW(matches("{}", "a"), DataError);
  EXPECT_THROW(matches(R"({"Glob":"*"})", "a"), DataError);
  EXPECT_THROW(matches(R"({"Regex":"("})", "a"), NotSupported);
  EXPECT_THROW(read("{}", pattern_of), DataError);
}

TEST(CharacterOf, TakesOneCodePoint) {
  const auto character = [](const std::string& text) {
    return read(text, [](const JsonView& view) { return character_of(view, "c"); });
  };
  EXPECT_EQ(character("{\"c\":\"\u2581\"}"), "\u2581");
  EXPECT_THROW(character(R"({"c":"ab"})"), DataError);
  EXPECT_THROW(character(R"({"c":""})"), DataError);
  EXPECT_THROW(character("{}"), DataError);
}

TEST(MetaspaceOptions, ReadTodaysAndOlderSpelling) {
  const auto today = read(R"({"replacement":"_","prepend_scheme":"first","split":false})", metaspace_options);
  EXPECT_EQ(today.replacement, "_");
  EXPECT_EQ(today.prepend, MetaspacePrepend::kFirst);
  EXPECT_FALSE(today.split);
  const auto older = read(R"({"replacement":"_","add_prefix_space":true})", metaspace_options);
  EXPECT_EQ(older.prepend, MetaspacePrepend::kAlways);
  EXPECT_TRUE(older.split);
  const auto never =
      read(R"({"replacement":"_","add_prefix_space":false,"prepend_scheme":"never"})", metaspace_options);
  EXPECT_EQ(never.prepend, MetaspacePrepend::kNever);
}

TEST(MetaspaceOptions, RefuseContradictionsAndUnknownSchemes) {
  for (const char* text : {R"({"replacement":"_","add_prefix_space":false,"prepend_scheme":"always"})",
                           R"({"replacement":"_","prepend_scheme":"last"})", R"({"replacement":"ab"})", "{}"})
    EXPECT_THROW(read(text, metaspace_options), DataError) << text;
}

}  // namespace
}  // namespace apus::data
