#include "apus/data/dpo_rows_json.h"

#include "apus/data/columns.h"
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
  EXPECT_EQ(refusal("17"), "no JSON object: the row is a number, expected an object");
}

TEST(DpoRowsJson, RefusesTwoRejectedAnswers) {
  const std::string messages =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], )";
  EXPECT_EQ(refusal(messages + R"("rejected_response": "b", "rejected_messages": [{"role": "user", )"
                               R"("content": "q"}, {"role": "assistant", "content": "c"}]})"),
            "two rejected answers: rejected_response stands beside rejected_messages; keep one of them");
  EXPECT_EQ(parse_dpo_example(messages + R"("rejected_response": "b", "rejected_messages": null})")
                .rejected[0]["content"],
            "b");
}

TEST(DpoRowsJson, TellsNumbersAndLayoutsThatJsonLinesDoNotHave) {
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": "a", "rejected": "b", "margin": 1e400})"),
            "broken JSON: the number 1e400 is too large; numbers must be below 1.8e308");
  for (const char* first : {"{", "{\"data\": [", R"({"prompt": "p",)"})
    EXPECT_TRUE(refusal(first).ends_with("; expected one object a line, or an array of objects")) << first;
  EXPECT_FALSE(refusal(R"({"prompt": "p")").ends_with("objects"));
}

TEST(DpoRowsJson, NamesAMissingKeyAndThoseThatAreThere) {
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": "a"})"), "missing key 'rejected': has: prompt, chosen");
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": null, "rejected": "b"})"),
            "key 'chosen' is null: has: prompt, chosen, rejected");
  EXPECT_EQ(refusal(R"({"chosen": "a", "rejected": "b"})"), "missing key 'prompt': has: chosen, rejected");
  EXPECT_TRUE(
      refusal("{}").starts_with("no preference row: has: nothing; expected prompt, chosen and rejected"));
  EXPECT_TRUE(
      refusal(R"({"query": "p", "response": "a"})").starts_with("no preference row: has: query, response"));
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
  EXPECT_EQ(
      refusal(with_chosen(R"("a")")),
      "wrong type: chosen is a string but rejected is a list; expected strings or lists of messages in both");
  EXPECT_EQ(refusal(R"({"prompt": [{"role": "user", "content": "q"}], "chosen": "a", "rejected": "b"})"),
            "wrong type: prompt is a list but chosen is a string; expected strings or lists of messages in "
            "all three");
  EXPECT_EQ(refusal(with_chosen("[3]")),
            "no message: chosen[0] is a number, expected a message {role, content}");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": 1, "content": "a"}])")),
            "unknown role: chosen[0].role is a number, expected a string");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "assistant", "content": {}}])")),
            "wrong type: chosen[0].content is an object, expected a string");
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": "a", "rejected": "b", "system": 1})"),
            "wrong type: system is a number, expected a string");
}

TEST(DpoRowsJson, RefusesConversationsThatCannotBeRendered) {
  EXPECT_EQ(refusal(with_chosen(R"([{"content": "a"}])")), "missing key 'role': chosen[0] has: content");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "assistant"}])")), "missing key 'content': chosen[0] has: role");
  EXPECT_EQ(
      refusal(with_chosen(R"([{"role": "gpt", "content": "a"}])")),
      "unknown role: 'gpt' in chosen[0]; expected system, user, assistant, tool, tool_call or tool_response");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "user", "content": "a"}])")),
            "chosen does not end in an assistant message: its last role is 'user'");
  EXPECT_EQ(refusal(R"({"system": "s", "prompt": [{"role": "system", "content": "t"}],
                        "chosen": [{"role": "assistant", "content": "a"}],
                        "rejected": [{"role": "assistant", "content": "b"}]})"),
            "two system texts: the key 'system' and a system message in prompt");
}

TEST(DpoRowsJson, NamesWhatIsNotSupportedYet) {
  EXPECT_EQ(refusal(R"({"prompt": "p", "chosen": "a", "rejected": "b", "images": ["x.png"]})"),
            "not supported yet: rows with key 'images'");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "assistant", "content": [{"type": "text"}]}])")),
            "wrong type: chosen[0].content is a list of parts; only one string is supported");
  EXPECT_EQ(refusal(with_chosen(R"([{"role": "assistant", "content": "a", "loss": false}])")),
            "not supported yet: loss or loss_scale inside chosen");
}

/// The three lists of a row, as text.
std::string split(const std::string& row) {
  const DpoExample example = parse_dpo_example(row);
  return example.prompt.dump() + " | " + example.chosen.dump() + " | " + example.rejected.dump();
}

constexpr const char* kPair =
    R"([{"role":"user","content":"q"}] | [{"role":"assistant","content":"a"}] | [{"role":"assistant","content":"b"}])";

TEST(DpoRowsJson, TheLastMessageIsChosenBesideARejectedResponse) {
  EXPECT_EQ(split(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                      "rejected_response": "b"})"),
            kPair);
  EXPECT_EQ(split(R"({"query": "q", "response": "a", "rejected_response": "b"})"), kPair);
  EXPECT_EQ(split(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}],
                      "rejected_response": "b"})"),
            kPair);
  EXPECT_EQ(split(R"({"system": "s", "query": "q", "response": "a", "rejected_response": "a"})"),
            R"([{"role":"system","content":"s"},{"role":"user","content":"q"}] | )"
            R"([{"role":"assistant","content":"a"}] | [{"role":"assistant","content":"a"}])");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "user", "content": "q"}], "rejected_response": "b"})"),
            "the conversation does not end in an assistant message: its last role is 'user'");
  EXPECT_EQ(refusal(R"({"query": "q", "response": "a", "rejected_response": ""})"), "empty rejected");
  EXPECT_EQ(refusal(R"({"query": "q", "response": "a", "rejected_response": 1})"),
            "wrong type: rejected_response is a number, expected a string");
  EXPECT_EQ(refusal(R"({"text": "q", "rejected_response": "b"})"),
            "a text has no answer: expected a conversation");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "assistant", "content": "a"}], "rejected_response": "b"})"),
            "chosen and rejected share no prompt: their first messages differ");
}

TEST(DpoRowsJson, TwoConversationsShareThePromptTheyBeginWith) {
  const std::string user = R"({"role": "user", "content": "q"})";
  const std::string a = R"({"role": "assistant", "content": "a"})",
                    b = R"({"role": "assistant", "content": "b"})";
  EXPECT_EQ(
      split(R"({"messages": [)" + user + "," + a + R"(], "rejected_messages": [)" + user + "," + b + "]}"),
      kPair);
  EXPECT_EQ(split(R"({"chosen": [)" + user + "," + a + R"(], "rejected": [)" + user + "," + b + "]}"), kPair);
  EXPECT_EQ(split(R"({"prompt": "not read", "chosen": [)" + user + "," + a + R"(], "rejected": [)" + user +
                  "," + b + "]}"),
            kPair);
  EXPECT_EQ(split(R"({"prompt": "q", "chosen": [)" + a + R"(], "rejected": [)" + b + "]}"), kPair);
  EXPECT_EQ(refusal(R"({"chosen": [)" + a + R"(], "rejected": [)" + b + "]}"),
            "chosen and rejected share no prompt: there is no key 'prompt', and their first messages differ");
  // Equal ones part before the last message.
  EXPECT_EQ(
      split(R"({"chosen": [)" + user + "," + a + R"(], "rejected": [)" + user + "," + a + "]}"),
      R"([{"role":"user","content":"q"}] | [{"role":"assistant","content":"a"}] | [{"role":"assistant","content":"a"}])");
}

TEST(DpoRowsJson, ASystemTextOfTheRowBelongsToBothConversations) {
  EXPECT_EQ(
      split(
          R"({"system": "s", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                      "rejected_messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})"),
      R"([{"role":"system","content":"s"},{"role":"user","content":"q"}] | )"
      R"([{"role":"assistant","content":"a"}] | [{"role":"assistant","content":"b"}])");
}

TEST(DpoRowsJson, ReadsToolsCallsAndMargin) {
  const DpoExample row = parse_dpo_example(
      R"({"prompt": [{"role": "user", "content": "q"}], "margin": 1.5, "tools": [{"name": "f"}],
          "chosen": [{"role": "tool_call", "content": "{\"name\": \"f\", \"arguments\": {}}"}],
          "rejected": [{"role": "assistant", "content": "b"}]})");
  EXPECT_EQ(row.tools.dump(), R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(
      row.chosen.dump(),
      R"([{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]}])");
  EXPECT_EQ(row.margin, 1.5f);
  EXPECT_EQ(parse_dpo_example(R"({"prompt":"p","chosen":"a","rejected":"b","margin":-2})").margin, -2.0f);
  EXPECT_EQ(refusal(R"({"prompt":"p","chosen":"a","rejected":"b","margin":"1"})"),
            R"(margin is no finite number: margin is "1")");
  EXPECT_EQ(refusal(R"({"prompt":"p","chosen":"a","rejected":"b","margin":1e300})"),
            "margin is no finite number: margin is 1e+300");
}

TEST(DpoRowsJson, RenamesColumnsFirst) {
  const ColumnMap columns =
      ColumnMap::parse(R"({"question": "prompt", "good": "chosen", "bad": "rejected"})");
  EXPECT_EQ(parse_dpo_example(R"({"question": "p", "good": "a", "bad": "b"})", columns).chosen, "a");
}

}  // namespace
}  // namespace apus::data
