#include "apus/data/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

ChatTemplate make(const std::string& source, SpecialTokens tokens = {}) {
  return ChatTemplate(JinjaTemplate::parse(source, "t"), std::move(tokens));
}

const Json kHello = Json::array({{{"role", "user"}, {"content", "Hi"}}});

TEST(ChatTemplate, PassesMessagesAndPrompt) {
  const auto chat = make(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}");
  EXPECT_EQ(chat.render(kHello), "user: Hi\n");
  EXPECT_EQ(chat.render(kHello, {.add_generation_prompt = true}), "user: Hi\nassistant:");
}

TEST(ChatTemplate, PassesNullForAbsentTools) {
  const auto chat =
      make("{{ tools is defined }} {{ tools is none }} {{ documents is none }} {{ tools|length if tools }}");
  EXPECT_EQ(chat.render(kHello), "True True True ");
  const Json none = Json::array();
  EXPECT_EQ(chat.render(kHello, {.tools = &none}), "True True True ");
  const Json tools = Json::array({Json::object({{"name", "f"}})});
  EXPECT_EQ(chat.render(kHello, {.tools = &tools}), "True False True 1");
  EXPECT_EQ(chat.render(kHello, {.documents = &tools}), "True True False ");
}

TEST(ChatTemplate, LeavesAbsentTokensUndefined) {
  const char* source = "{{ bos_token is defined }}{{ eos_token }}{{ pad_token is defined }}{{ unk_token }}";
  EXPECT_EQ(make(source).render(kHello), "FalseFalse");
  const SpecialTokens tokens = {.bos = "<s>", .eos = "</s>", .unk = "<unk>"};
  EXPECT_EQ(make(source, tokens).render(kHello), "True</s>False<unk>");
  EXPECT_EQ(make(source, tokens).special_tokens().eos, "</s>");
}

TEST(ChatTemplate, LetsExtraVariablesWin) {
  const auto chat = make("{{ enable_thinking }}{{ eos_token }}", {.eos = "a"});
  const Json extra = {{"enable_thinking", false}, {"eos_token", "b"}};
  EXPECT_EQ(chat.render(kHello, {.extra = &extra}), "Falseb");
}

TEST(ChatTemplate, GivesSpansOfGenerationBlocks) {
  const auto chat =
      make("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}");
  const RenderResult result = chat.render_with_spans(kHello);
  EXPECT_EQ(result.text, "Hi;");
  ASSERT_EQ(result.generation_spans.size(), 1u);
  EXPECT_EQ(result.generation_spans[0], (std::pair<size_t, size_t>{0, 2}));
  EXPECT_TRUE(chat.jinja().has_generation_blocks());
}

TEST(ChatTemplate, RefusesWrongTypes) {
  const auto chat = make("x");
  const Json object = Json::object();
  const Json array = Json::array();
  EXPECT_THROW(chat.render(object), ConfigError);
  EXPECT_THROW(chat.render(kHello, {.tools = &object}), ConfigError);
  EXPECT_THROW(chat.render(kHello, {.documents = &object}), ConfigError);
  EXPECT_THROW(chat.render(kHello, {.extra = &array}), ConfigError);
}

TEST(ChatTemplate, GivesTheContextThatItRendersWith) {
  const ChatTemplate chat = make("{{ messages | length }}{{ '>' if add_generation_prompt }}");
  Json context = chat.context(kHello, {.add_generation_prompt = true});
  EXPECT_TRUE(context["tools"].is_null());
  EXPECT_EQ(chat.jinja().render(context).text, chat.render(kHello, {.add_generation_prompt = true}));
  context["add_generation_prompt"] = false;
  EXPECT_EQ(chat.jinja().render(context).text, chat.render(kHello));
}

TEST(ChatTemplate, PassesLimitsOn) {
  EXPECT_THROW(make("{% for i in range(1000) %}x{% endfor %}")
                   .render(kHello, {.render = {.limits = {.max_steps = 100}}}),
               JinjaError);
}

}  // namespace
}  // namespace apus::data
