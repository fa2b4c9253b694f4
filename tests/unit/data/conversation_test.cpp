#include "apus/data/conversation.h"

#include "apus/data/rows_report.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

Conversation made(const std::string& row) {
  return make_conversation(Json::parse(row));
}

std::string messages_of(const std::string& row) {
  return made(row).messages.dump();
}

/// The code and message that a row is refused with.
std::string refusal(const std::string& row) {
  try {
    made(row);
  } catch (const RowRefused& refused) {
    return refused.problem().code + " | " + refused.what();
  }
  ADD_FAILURE() << "took " << row;
  return {};
}

std::string code_of(const std::string& row) {
  const std::string text = refusal(row);
  return text.substr(0, text.find(' '));
}

constexpr const char* kTranslate =
    R"([{"role":"user","content":"Translate.\nGood morning"},{"role":"assistant","content":"Guten Morgen"}])";
constexpr const char* kHistory =
    R"([{"role":"system","content":"Be terse."},{"role":"user","content":"Hi"},)"
    R"({"role":"assistant","content":"Hello"},{"role":"user","content":"Weather?"},)"
    R"({"role":"assistant","content":"Sunny"}])";

TEST(MakeConversation, EveryShapeOfOneExchangeGivesTheSameMessages) {
  EXPECT_EQ(messages_of(R"({"messages": )" + std::string(kTranslate) + "}"), kTranslate);
  EXPECT_EQ(
      messages_of(R"({"instruction": "Translate.", "input": "Good morning", "output": "Guten Morgen"})"),
      kTranslate);
  EXPECT_EQ(messages_of(R"({"instruction": "Translate.\nGood morning", "output": "Guten Morgen"})"),
            kTranslate);
  EXPECT_EQ(
      messages_of(R"({"instruction": "", "input": "Translate.\nGood morning", "output": "Guten Morgen"})"),
      kTranslate);
  EXPECT_EQ(
      messages_of(R"({"query": "Translate.\nGood morning", "response": "Guten Morgen", "history": []})"),
      kTranslate);
  EXPECT_EQ(messages_of(R"({"conversations": [{"from": "human", "value": "Translate.\nGood morning"},
                                              {"from": "gpt", "value": "Guten Morgen"}]})"),
            kTranslate);
}

TEST(MakeConversation, ChannelsAreTextsOrWholeNumbers) {
  EXPECT_EQ(made(R"({"query": "a", "response": "b", "channel": "code"})").channel, "code");
  EXPECT_EQ(made(R"({"text": "a", "channel": 3})").channel, "3");
  EXPECT_EQ(made(R"({"text": "a", "channel": null})").channel, "");
  EXPECT_EQ(made(R"({"text": "a"})").channel, "");
  EXPECT_EQ(code_of(R"({"text": "a", "channel": 1.5})"), "bad_channel");
  EXPECT_EQ(code_of(R"({"text": "a", "channel": {}})"), "bad_channel");
  EXPECT_EQ(code_of(R"({"text": "a", "channel": ")" + std::string(101, 'x') + "\"}"), "bad_channel");
  EXPECT_EQ(made(R"({"text": "a", "channel": ")" + std::string(100, 'x') + "\"}").channel.size(), 100u);
}

TEST(MakeConversation, HistoryAndSystemGoFirst) {
  EXPECT_EQ(messages_of(R"({"system": "Be terse.", "query": "Weather?", "response": "Sunny",
                            "history": [["Hi", "Hello"]]})"),
            kHistory);
  EXPECT_EQ(messages_of(R"({"system": "Be terse.", "instruction": "Weather?", "output": "Sunny",
                            "history": [["Hi", "Hello"]]})"),
            kHistory);
  EXPECT_EQ(messages_of(R"({"system": "Be terse.", "conversation": [{"human": "Hi", "assistant": "Hello"},
                            {"human": "Weather?", "assistant": "Sunny"}]})"),
            kHistory);
  EXPECT_EQ(made(R"({"system": "", "query": "a", "response": "b"})").messages.size(), 2u);
  EXPECT_EQ(made(R"({"system": "s", "messages": [{"role": "system", "content": "s"}]})").messages.size(), 1u);
}

TEST(MakeConversation, KnowsTheSpeakersOfShareGpt) {
  const auto role = [](const std::string& from, const std::string& value) {
    return made(R"({"conversations": [{"from": ")" + from + R"(", "value": ")" + value + R"("}]})")
        .messages[0]["role"]
        .get<std::string>();
  };
  for (const char* from : {"human", "user"}) EXPECT_EQ(role(from, "x"), "user");
  for (const char* from : {"gpt", "assistant", "bot"}) EXPECT_EQ(role(from, "x"), "assistant");
  for (const char* from : {"observation", "function_response", "tool_response", "tool"})
    EXPECT_EQ(role(from, "x"), "tool");
  for (const char* from : {"function_call", "tool_call"})
    EXPECT_EQ(role(from, R"({\"name\": \"f\", \"arguments\": {}})"), "assistant");
  EXPECT_EQ(role("system", "x"), "system");
  EXPECT_EQ(messages_of(R"({"conversations": [{"from": "gpt", "role": "user", "value": "a", "name": "n"}]})"),
            R"([{"role":"assistant","content":"a","name":"n"}])");
}

TEST(MakeConversation, SaysWhichShapeItFound) {
  EXPECT_EQ(made(R"({"messages": [{"role": "user", "content": "a"}], "text": null})").form, "messages");
  EXPECT_EQ(made(R"({"conversation": [{"from": "user", "value": "a"}]})").form, "sharegpt");
  EXPECT_EQ(made(R"({"instruction": "a", "output": "b"})").form, "alpaca");
  EXPECT_EQ(made(R"({"query": "a", "response": "b"})").form, "query");
  const Conversation text = made(R"({"text": "raw"})");
  EXPECT_EQ(text.form, "text");
  EXPECT_EQ(text.text, "raw");
  EXPECT_TRUE(text.messages.empty());
}

TEST(MakeConversation, RefusesRowsOfNoShape) {
  EXPECT_EQ(refusal(R"({"foo": "bar"})").find("unknown_form | no known shape: has: foo; expected messages"),
            0u);
  EXPECT_EQ(code_of(R"({"messages": []})"), "empty_messages");
  EXPECT_EQ(code_of(R"({"messages": null})"), "empty_messages");
  EXPECT_EQ(code_of(R"({"conversations": []})"), "empty_messages");
  EXPECT_EQ(code_of(R"({"conversations": "x"})"), "unknown_form");
  EXPECT_EQ(code_of(R"({"conversations": ["x"]})"), "bad_message");
  EXPECT_EQ(code_of(R"({"conversations": [{"value": "x"}]})"), "unknown_role");
  EXPECT_EQ(code_of(R"({"conversations": [{"from": "critic", "value": "x"}]})"), "unknown_role");
  EXPECT_EQ(code_of(R"({"text": 7})"), "bad_text");
  EXPECT_EQ(code_of(R"({"text": null})"), "bad_text");
  EXPECT_EQ(code_of(R"({"query": "a"})"), "missing_content");
  EXPECT_EQ(code_of(R"({"instruction": 3, "output": "b"})"), "bad_content");
  EXPECT_EQ(code_of(R"({"query": "a", "response": "b", "history": "x"})"), "bad_history");
  EXPECT_EQ(code_of(R"({"query": "a", "response": "b", "history": [["x"]]})"), "bad_history");
  EXPECT_EQ(code_of(R"({"system": "s", "messages": [{"role": "system", "content": "t"}]})"), "two_systems");
  EXPECT_EQ(code_of(R"({"query": "a", "response": "b", "images": ["x.png"]})"), "not_supported");
}

TEST(MakeConversation, NamesTheKeysThatTheRowHas) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"response": "only"})", "missing_content | missing key 'query': has: response"},
      {R"({"prompt": "p", "response": "a"})", "missing_content | missing key 'query': has: prompt, response"},
      {R"({"query": "q", "response": null})",
       "missing_content | key 'response' is null: has: query, response"},
      {R"({"query": "q", "response": ["a"]})",
       "bad_content | wrong type: response is a list, expected a string"},
      {R"({"query": 7, "response": "a"})", "bad_content | wrong type: query is a number, expected a string"},
      {R"({"instruction": "q"})", "missing_content | missing key 'output': has: instruction"},
      {R"({"instruction": "q", "output": {}})",
       "bad_content | wrong type: output is an object, expected a string"},
      {R"({"query": "q", "response": "a", "history": [["a", "b"], ["c"]]})",
       "bad_history | history that cannot be read: history[1] is a list of 1, expected [[user, assistant], "
       "...]"},
      {R"({"query": "q", "response": "a", "history": ["x"]})",
       "bad_history | history that cannot be read: history[0] is a string, expected [[user, assistant], "
       "...]"},
      {R"({"query": "q", "response": "a", "history": [["a", 3]]})",
       "bad_content | wrong type: history[0][1] is a number, expected a string"},
      {R"({"query": "q", "response": "a", "history": [[null, "b"]]})",
       "missing_content | history that cannot be read: history[0][0] is null, expected a string"},
      {R"({"conversations": [{"from": "human", "value": null}]})",
       "missing_content | key 'value' is null: conversations[0] has: from, value"},
      {R"({"conversations": [{"from": "human", "value": 3}]})",
       "bad_content | wrong type: conversations[0].value is a number, expected a string"},
      {R"({"conversations": [{"from": null, "value": "a"}]})",
       "unknown_role | key 'from' is null: conversations[0] has: from, value"},
      {R"({"messages": [{"role": "user", "content": null}]})",
       "missing_content | key 'content' is null: messages[0] has: role, content"},
      {R"({"messages": [{"role": null, "content": "a"}]})",
       "unknown_role | key 'role' is null: messages[0] has: role, content"},
  };
  for (const auto& [row, expected] : cases) EXPECT_EQ(refusal(row), expected);
}

TEST(SetSystem, PutsATextBeforeMessagesThatHaveNone) {
  Conversation conversation = made(R"({"query": "a", "response": "b"})");
  set_system(conversation, "");
  EXPECT_EQ(conversation.messages.size(), 2u);
  set_system(conversation, "s");
  set_system(conversation, "t");
  EXPECT_EQ(conversation.messages[0].dump(), R"({"role":"system","content":"s"})");
  EXPECT_EQ(conversation.messages.size(), 3u);
  EXPECT_EQ(conversation.weights.size(), 3u);
  EXPECT_EQ(conversation.weights[2].value, 1.0f);
}

}  // namespace
}  // namespace apus::data
