#include "apus/data/dpo_rows_json.h"

#include "apus/data/rows_report.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

std::string refusal(const std::string& text) {
  return message_of<RowRefused>([&] { parse_dpo_example(text); });
}

/// A row whose prompt and rejected are fine.
std::string with_chosen(const std::string& chosen) {
  return R"({"prompt": [{"role": "user", "content": "q"}], "chosen": )" + chosen +
         R"(, "rejected": [{"role": "assistant", "content": "b"}]})";
}

TEST(DpoRowsJson, ReadsStrings) {
  const DpoExample row = parse_dpo_example(
      R"({"id": 7, "prompt": "", "chosen": "a", "rejected": "b", "system": "s", "margin": null})");
  EXPECT_FALSE(row.is_conversation());
  EXPECT_EQ(row.prompt, "");
  EXPECT_EQ(row.chosen, "a");
  EXPECT_EQ(row.rejected, "b");
  EXPECT_EQ(row.system, "s");
  EXPECT_EQ(parse_dpo_example(R"({"prompt":"p","chosen":"a","rejected":"b","system":""})").system,
            std::nullopt);
  EXPECT_EQ(parse_dpo_example(R"({"prompt":"p","chosen":"a","rejected":"b","tools":[]})").system,
            std::nullopt);
}

TEST(DpoRowsJson, ReadsMessagesWithAllTheirKeys) {
  const DpoExample row = parse_dpo_example(with_chosen(
      R"([{"role": "assistant", "tool_calls": [{"name": "f"}]}, {"role": "tool", "content": "1"},
          {"name": "x", "role": "assistant", "content": "a"}])"));
  EXPECT_TRUE(row.is_conversation());
  ASSERT_EQ(row.chosen.size(), 3u);
  EXPECT_EQ(row.chosen[2].begin().key(), "name");
  EXPECT_EQ(row.rejected[0]["content"], "b");
}

TEST(DpoRowsJson, GivesTheColumnOfBrokenJson) {
  const std::string message = refusal(R"({"prompt": "p", "chosen": "a" "rejected": "b"})");
  EXPECT_TRUE(message.starts_with("broken JSON: column ")) << message;
  EXPECT_NE(refusal("{\"prompt\": \"\xff\"}").find("broken JSON"), std::string::npos);
  EXPECT_NE(refusal(std::string(100000, '[')).find("broken JSON"), std::string::npos);
  EXPECT_EQ(refusal("17"), "wrong type: the row is a number, expected an object");
}

TEST(DpoRowsJson, NamesAMissingKeyAndThoseThatAreThere) {
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": "a"})"), "missing key 'rejected': has: prompt, chosen");
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": null, "rejected": "b"})"),
            "missing key 'chosen': has: prompt, chosen, rejected");
  EXPECT_EQ(refusal("{}"), "missing key 'prompt': has: nothing");
}

TEST(DpoRowsJson, RefusesEmptyAnswers) {
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": "", "rejected": "b"})"), "empty chosen");
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": "a", "rejected": ""})"), "empty rejected");
  EXPECT_EQ(refusal(with_chosen("[]")), "empty chosen: the list has no message");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "assistant", "content": ""}])")), "empty chosen");
}

TEST(DpoRowsJson, RefusesWrongTypes) {
  EXPECT_EQ(refusal(R"({"prompt": 3, "chosen": "a", "rejected": "b"})"),
            "wrong type: prompt is a number, expected a string or a list of messages");
  EXPECT_EQ(refusal(with_chosen(R"("a")")),
            "wrong type: prompt is a list but chosen is a string; expected strings or lists of messages in "
            "all three");
  EXPECT_EQ(refusal(with_chosen("[3]")),
            "wrong type: chosen[0] is a number, expected a message {role, content}");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": 1, "content": "a"}])")),
            "wrong type: chosen[0].role is a number, expected a string");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "assistant", "content": {}}])")),
            "wrong type: chosen[0].content is an object, expected a string");
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": "a", "rejected": "b", "system": 1})"),
            "wrong type: system is a number, expected a string");
}

TEST(DpoRowsJson, RefusesConversationsThatCannotBeRendered) {
  EXPECT_EQ(refusal(with_chosen(R"([{"content": "a"}])")), "missing key 'role': chosen[0] has: content");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "assistant"}])")), "missing key 'content': chosen[0] has: role");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "gpt", "content": "a"}])")),
            "unknown role: 'gpt' in chosen[0]; expected system, user, assistant or tool");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "user", "content": "a"}])")),
            "chosen does not end in an assistant message: its last role is 'user'");
  EXPECT_EQ(refusal(R"({"system": "s", "prompt": [{"role": "system", "content": "t"}],
                        "chosen": [{"role": "assistant", "content": "a"}],
                        "rejected": [{"role": "assistant", "content": "b"}]})"),
            "two system texts: the key 'system' and a system message in prompt");
}

TEST(DpoRowsJson, NamesWhatIsNotSupportedYet) {
  EXPECT_EQ(
      refusal(R"({"messages": [{"role": "user", "content": "q"}], "rejected_response": "b"})"),
      "not supported yet: rows of keys 'messages', 'rejected_response'; use 'prompt', 'chosen', 'rejected'");
  EXPECT_EQ(
      refusal(R"({"instruction": "p", "input": "", "output": "a"})"),
      "not supported yet: rows of keys 'instruction', 'input', 'output'; use 'prompt', 'chosen', 'rejected'");
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": "a", "rejected": "b", "margin": 0.5})"),
            "not supported yet: preference rows with key 'margin'");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "tool_call", "content": "a"}])")),
            "not supported yet: role 'tool_call' in chosen[0]");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "assistant", "content": [{"type": "text"}]}])")),
            "not supported yet: chosen[0].content is a list of parts; use one string");
}

}  // namespace
}  // namespace apus::data
