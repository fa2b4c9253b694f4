#include "data/row_renderer.h"

#include "apus/base/error.h"
#include "apus/data/rows_report.h"
#include "data/row_json.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

TEST(RowRenderer, RendersAConversationAsItGrows) {
  const ChatTemplate chat(
      JinjaTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}{{ '>' if "
                           "add_generation_prompt }}{{ name }}{{ tools }}",
                           "test"));
  RowRenderer rows(chat, Json::array({1}), {{"name", "n"}}, nullptr);
  EXPECT_EQ(rows.render().text, "n[1]");
  rows.add({{"role", "user"}, {"content", "a"}});
  EXPECT_EQ(rows.try_render(GenerationPrompt::kWith), "a>n[1]");
  rows.add({{"role", "assistant"}, {"content", "b"}});
  EXPECT_EQ(rows.try_render(GenerationPrompt::kWithout), "abn[1]");
  EXPECT_EQ(rows.render(GenerationPrompt::kWith).text, "ab>n[1]");
}

TEST(RowRenderer, TellsRefusalsFromWhatIsNotBuilt) {
  const ChatTemplate strict(JinjaTemplate::parse("{{ raise_exception('roles must alternate') }}", "test"));
  RowRenderer rows(strict, nullptr, nullptr, nullptr);
  EXPECT_EQ(rows.try_render(GenerationPrompt::kWith), std::nullopt);
  EXPECT_EQ(message_of<RowRefused>([&] { rows.render(); }),
            "refused by the chat template: roles must alternate");
}

TEST(CheckTemplateKwargs, TakesObjectsThatLeaveTheConversationAlone) {
  check_template_kwargs(nullptr);
  check_template_kwargs({{"enable_thinking", false}});
  EXPECT_THROW(check_template_kwargs(Json::array()), ConfigError);
  EXPECT_THROW(check_template_kwargs({{"add_generation_prompt", true}}), ConfigError);
}

TEST(ParseRow, TakesObjectsOnly) {
  EXPECT_EQ(parse_row(R"({"b": 1, "a": 2})").dump(), R"({"b":1,"a":2})");
  EXPECT_EQ(message_of<RowRefused>([] { parse_row("17"); }),
            "no JSON object: the row is a number, expected an object");
  EXPECT_TRUE(message_of<RowRefused>([] { parse_row("{\"a\" 1}"); }).starts_with("broken JSON: column "));
}

TEST(RowValues, NullStandsForAbsent) {
  Json row = Json::parse(R"({"a": null, "b": 1})");
  EXPECT_EQ(find_value(row, "a"), nullptr);
  EXPECT_EQ(find_value(row, "c"), nullptr);
  EXPECT_EQ(*find_value(row, "b"), 1);
  EXPECT_EQ(take_value(row, "b"), 1);
  EXPECT_TRUE(take_value(row, "b").is_null());
  EXPECT_EQ(keys_of(row), "a");
  EXPECT_EQ(keys_of(Json::object()), "nothing");
  EXPECT_EQ(type_text(row), "an object");
  EXPECT_EQ(type_text(nullptr), "null");
}

TEST(RequireSupportedKeys, NamesWhatWouldBeLeftOut) {
  require_supported_keys({{"images", Json::array()}, {"videos", nullptr}});
  EXPECT_EQ(message_of<RowRefused>([] {
              require_supported_keys({{"images", Json::array({"a.png"})}});
            }),
            "not supported yet: rows with key 'images'");
}

}  // namespace
}  // namespace apus::data
