#include "data/row_encoding.h"

#include <nlohmann/json.hpp>

#include "apus/data/rows_report.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Begins = std::vector<size_t>;

/// GPT-2's way of writing bytes, few merges, and what a test adds. Ids: 0 "a", 1 "b", 2 space, 3 space + "a",
/// 4 and 5 the two bytes of e with an acute accent, 6 "e" and 7 U+0301's two bytes in one.
std::shared_ptr<const Tokenizer> tokenizer_with(const std::string& parts, const std::string& added = "[]") {
  return Tokenizer::from_json(R"({"added_tokens": )" + added +
                                  R"(, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "Ġa": 3,
          "Ã": 4, "©": 5, "e": 6, "Ì": 7, "ģ": 8}, "merges": ["Ġ a"]}, "decoder": {"type": "ByteLevel"},
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})" +
                                  parts + "}",
                              "test");
}

TEST(ChatTemplateOf, NamesTheFileOfATemplateThatCannotBeRead) {
  TokenizerFolder folder = load_tokenizer_folder(APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer");
  ASSERT_FALSE(folder.chat_template_source.empty());
  folder.chat_template = folder.config.chat_templates["default"] = "{% if %}";
  const auto error = [&] { return message_of<JinjaError>([&] { chat_template_of(folder); }); };
  EXPECT_TRUE(error().starts_with(folder.chat_template_source + ":1: ")) << error();
  EXPECT_NE(error().find(APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer/"), std::string::npos) << error();
  folder.chat_template = "{% for %}";
  EXPECT_TRUE(error().starts_with("chat_template:1: ")) << "not the folder's own: " << error();
}

TEST(PlacedTokens, AreBytesOfTheText) {
  const PlacedTokens placed = placed_tokens(*tokenizer_with(""), "b aé a");
  EXPECT_EQ(placed.ids, (std::vector<int32_t>{1, 3, 4, 5, 3}));
  EXPECT_EQ(placed.begins, (Begins{0, 1, 3, 4, 5}));
  EXPECT_TRUE(placed_tokens(*tokenizer_with(""), "").ids.empty());
}

TEST(PlacedTokens, CountFromTheTextBeforeNormalisation) {
  // e and U+0301 become one character of two bytes, whose tokens both begin at the e.
  const PlacedTokens placed =
      placed_tokens(*tokenizer_with(R"(, "normalizer": {"type": "NFC"})"), "ae\u0301b");
  EXPECT_EQ(placed.ids, (std::vector<int32_t>{0, 4, 5, 1}));
  EXPECT_EQ(placed.begins, (Begins{0, 1, 1, 4}));
}

TEST(PlacedTokens, ATokenThatEatsSpacesBeginsWithThem) {
  const auto tokenizer = tokenizer_with(
      "", R"([{"id": 9, "content": "<x>", "lstrip": true, "rstrip": false, "single_word": false,
               "normalized": false, "special": true}])");
  EXPECT_EQ(placed_tokens(*tokenizer, "a  <x>b").begins, (Begins{0, 1, 6}));
}

TEST(PlacedTokens, TheirOwnSpacesBelongToThemThoughAPostProcessorTrims) {
  const std::string trims =
      R"(, "post_processor": {"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": false, "use_regex": true},
           "normalizer": {"type": "NFC"})";
  // The accent keeps the cheap way from being taken.
  const PlacedTokens placed = placed_tokens(*tokenizer_with(trims), "b ae\u0301 a");
  EXPECT_EQ(placed.ids, (std::vector<int32_t>{1, 3, 4, 5, 3}));
  EXPECT_EQ(placed.begins, (Begins{0, 1, 3, 3, 6}));
}

TEST(RowTokens, ATextThatIsNotUtf8RefusesTheRow) {
  try {
    row_tokens(*tokenizer_with(""), "a\xff", {});
    FAIL() << "took it";
  } catch (const RowRefused& refused) {
    EXPECT_EQ(refused.problem().code, "bad_text");
  }
}

TEST(ChatTemplateOf, IsNothingWithoutOne) {
  TokenizerFolder folder{.tokenizer = tokenizer_with("")};
  EXPECT_FALSE(chat_template_of(folder));
  folder.chat_template = "{{ eos_token }}";
  folder.config.eos_token = "<e>";
  EXPECT_EQ(chat_template_of(folder)->render(nlohmann::ordered_json::array()), "<e>");
  folder.chat_template = "{% if %}";
  EXPECT_THROW(chat_template_of(folder), JinjaError);
}

}  // namespace
}  // namespace apus::data
