#include "apus/data/conversation.h"
#include "apus/data/rows_report.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

Conversation normalized(const std::string& list) {
  return normalized_messages(Json::parse(list), "messages");
}

std::string code_of(const std::string& list) {
  try {
    normalized(list);
  } catch (const RowRefused& refused) {
    return refused.problem().code;
  }
  ADD_FAILURE() << "took " << list;
  return {};
}

std::string one(const std::string& message) {
  return code_of("[" + message + "]");
}

/// The weights of a list's messages.
std::vector<float> weights_of(const std::string& list) {
  std::vector<float> values;
  for (const TurnWeight& weight : normalized(list).weights) values.push_back(weight.value);
  return values;
}

constexpr const char* kCall =
    R"({"role": "tool_call", "content": "{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}"})";
constexpr const char* kCallEntry = R"({"type":"function","function":{"name":"f","arguments":{"b":1,"a":2}}})";

TEST(NormalizedMessages, JoinsConsecutiveCallsIntoOneTurn) {
  const Conversation two =
      normalized("[" + std::string(kCall) + ", " + kCall + R"(, {"role": "tool_response", "content": "1"}])");
  EXPECT_EQ(two.messages.dump(), R"([{"role":"assistant","content":"","tool_calls":[)" +
                                     std::string(kCallEntry) + "," + kCallEntry +
                                     R"(]},{"role":"tool","content":"1"}])");
  EXPECT_EQ(two.weights.size(), 2u);
}

TEST(NormalizedMessages, JoinsACallToTheMessageBeforeIt) {
  const Conversation joined =
      normalized(R"([{"role": "assistant", "content": "Look."}, )" + std::string(kCall) + "]");
  EXPECT_EQ(joined.messages.dump(),
            R"([{"role":"assistant","content":"Look.","tool_calls":[)" + std::string(kCallEntry) + "]}]");
}

TEST(NormalizedMessages, KeepsOtherKeysAndTakesTheLossOut) {
  const Conversation kept = normalized(
      R"([{"role": "user", "content": "q", "name": "n", "loss": false},
          {"role": "assistant", "content": null, "tool_calls": [{"name": "f"}], "loss": true, "loss_scale": 0.5}])");
  EXPECT_EQ(kept.messages.dump(), R"([{"role":"user","content":"q","name":"n"},)"
                                  R"({"role":"assistant","content":null,"tool_calls":[{"name":"f"}]}])");
  EXPECT_EQ(kept.weights[1].value, 0.5f);
  EXPECT_TRUE(kept.weights[1].is_given);
  EXPECT_FALSE(kept.weights[0].is_given);
}

TEST(NormalizedMessages, WeighsTurns) {
  EXPECT_EQ(weights_of(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                           {"role": "assistant", "content": "b", "loss": false, "loss_scale": 2},
                           {"role": "assistant", "content": "c", "loss_scale": 3},
                           {"role": "assistant", "content": "d", "loss": null, "loss_scale": 0.0}])"),
            (std::vector<float>{0, 1, 0, 3, 0}));
}

TEST(NormalizedMessages, RefusesWrongLosses) {
  EXPECT_EQ(one(R"({"role": "assistant", "content": "a", "loss": "false"})"), "bad_loss");
  EXPECT_EQ(one(R"({"role": "assistant", "content": "a", "loss": 0})"), "bad_loss");
  EXPECT_EQ(one(R"({"role": "assistant", "content": "a", "loss_scale": -1})"), "bad_loss_scale");
  EXPECT_EQ(one(R"({"role": "assistant", "content": "a", "loss_scale": true})"), "bad_loss_scale");
  EXPECT_EQ(one(R"({"role": "assistant", "content": "a", "loss_scale": 1e39})"), "bad_loss_scale");
  EXPECT_EQ(one(R"({"role": "user", "content": "a", "loss": true})"), "loss_on_non_assistant");
  EXPECT_EQ(one(R"({"role": "tool", "content": "a", "loss_scale": 1})"), "loss_on_non_assistant");
  EXPECT_EQ(normalized(R"([{"role": "tool", "content": "a", "loss_scale": 0}])").weights[0].value, 0.0f);
  EXPECT_EQ(code_of(R"([{"role": "assistant", "content": "a", "loss": false}, )" + std::string(kCall) + "]"),
            "loss_conflict");
}

TEST(NormalizedMessages, RefusesWrongMessages) {
  EXPECT_EQ(code_of("[]"), "empty_messages");
  EXPECT_EQ(code_of("{}"), "empty_messages");
  EXPECT_EQ(one("3"), "bad_message");
  EXPECT_EQ(one(R"({"content": "a"})"), "unknown_role");
  EXPECT_EQ(one(R"({"role": 3, "content": "a"})"), "unknown_role");
  EXPECT_EQ(one(R"({"role": "critic", "content": "a"})"), "unknown_role");
  EXPECT_EQ(one(R"({"role": "assistant"})"), "missing_content");
  EXPECT_EQ(one(R"({"role": "assistant", "tool_calls": []})"), "missing_content");
  EXPECT_EQ(one(R"({"role": "user", "content": 7})"), "bad_content");
  EXPECT_EQ(one(R"({"role": "user", "content": [{"type": "text", "text": "a"}]})"), "bad_content");
}

TEST(NormalizedMessages, RefusesCallsThatAreNone) {
  const auto call = [](const std::string& content) {
    return one(R"({"role": "tool_call", "content": )" + Json(content).dump() + "}");
  };
  EXPECT_EQ(call("f(1)"), "bad_tool_call");
  EXPECT_EQ(call("[]"), "bad_tool_call");
  EXPECT_EQ(call(R"({"name": 1, "arguments": {}})"), "bad_tool_call");
  EXPECT_EQ(call(R"({"name": "f"})"), "bad_tool_call");
  EXPECT_EQ(call(R"({"name": "f", "arguments": "{}"})"), "bad_tool_call");
  EXPECT_EQ(one(R"({"role": "tool_call", "tool_calls": [1]})"), "bad_tool_call");
}

TEST(NormalizedTools, WrapsEntriesOfAListOrOfItsText) {
  const std::string wrapped = R"([{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(normalized_tools(Json::parse(wrapped)).dump(), wrapped);
  EXPECT_EQ(normalized_tools(Json::parse(R"([{"name": "f"}])")).dump(), wrapped);
  EXPECT_EQ(normalized_tools(Json(R"([{"name": "f"}])")).dump(), wrapped);
  for (const char* none : {"null", "[]", "\"\"", "\"[]\"", "\"null\""})
    EXPECT_TRUE(normalized_tools(Json::parse(none)).is_null()) << none;
}

TEST(NormalizedTools, RefusesWhatIsNoList) {
  for (const char* tools : {"3", "{}", "[3]", "\"{\"", "\"{}\""}) {
    try {
      normalized_tools(Json::parse(tools));
      ADD_FAILURE() << "took " << tools;
    } catch (const RowRefused& refused) {
      EXPECT_EQ(refused.problem().code, "bad_tools") << tools;
    }
  }
}

}  // namespace
}  // namespace apus::data
