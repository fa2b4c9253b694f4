#include "data/turn_spans.h"

#include "apus/data/rows_report.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

const TurnMarks kMarks{.generation_prompt = "<a>", .header = "<a>", .end_of_turn = "<e>"};

/// A question, an answer, and so on.
Conversation conversation_of(const std::vector<std::string>& texts) {
  Conversation conversation;
  for (size_t i = 0; i < texts.size(); ++i) {
    conversation.messages.push_back(Json{{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", texts[i]}});
    conversation.weights.push_back({i % 2 == 0 ? 0.0f : 1.0f, false});
  }
  return conversation;
}

/// What the span of each turn holds, "*" before those that were searched for.
std::vector<std::string> located(const RenderedTurns& rendered, const Conversation& conversation,
                                 const TurnMarks& marks = kMarks) {
  std::vector<std::string> texts;
  for (const TurnSpan& span : locate_turns(rendered, conversation, marks))
    texts.push_back((span.is_searched ? "*" : "") + rendered.text.substr(span.begin, span.end - span.begin));
  return texts;
}

std::string code_of(const RenderedTurns& rendered, const Conversation& conversation,
                    const TurnMarks& marks = kMarks) {
  try {
    located(rendered, conversation, marks);
  } catch (const RowRefused& refused) {
    return refused.problem().code;
  }
  return "none";
}

using Texts = std::vector<std::string>;

TEST(LocateTurns, TakesPrefixesWhereTheyAreOnes) {
  const RenderedTurns rendered{
      "<u>q<e>\n<a>x<e>\n<u>r<e>\n<a>y<e>\n",
      {{1, "<u>q<e>\n<a>", "<u>q<e>\n<a>x<e>\n"},
       {3, "<u>q<e>\n<a>x<e>\n<u>r<e>\n<a>", "<u>q<e>\n<a>x<e>\n<u>r<e>\n<a>y<e>\n"}}};
  EXPECT_EQ(located(rendered, conversation_of({"q", "x", "r", "y"})), (Texts{"x<e>", "y<e>"}));
  EXPECT_EQ(located(rendered, conversation_of({"<a><e>", "x", "r", "y"})), (Texts{"x<e>", "y<e>"}));
}

TEST(LocateTurns, SearchesWhereHistoryIsRewritten) {
  const Conversation conversation = conversation_of({"q", "<think>t</think> x", "r", "y"});
  const RenderedTurns rendered{
      "<u>q<e>\n<a>x<e>\n<u>r<e>\n<a>y<e>",
      {{1, std::nullopt, "<u>q<e>\n<a><think>t</think> x<e>"}, {3, "other", std::nullopt}}};
  EXPECT_EQ(located(rendered, conversation), (Texts{"*x<e>", "*y<e>"}));
}

TEST(LocateTurns, StartsAfterTheWholePromptWhereItStandsThere) {
  const TurnMarks marks{.generation_prompt = "<a><t>", .header = "<a>", .end_of_turn = "<e>"};
  const RenderedTurns rendered{"<u>q<e><a><t>x<e><u>r<e><a>y<e>", {{1, {}, {}}, {3, {}, {}}}};
  EXPECT_EQ(located(rendered, conversation_of({"q", "x", "r", "y"}), marks), (Texts{"*x<e>", "*y<e>"}));
}

TEST(LocateTurns, LeavesTheHeaderOutWhereNothingPrompts) {
  const TurnMarks marks{.generation_prompt = "", .header = "A:  ", .end_of_turn = "<e>"};
  const RenderedTurns prefix{"U:q\nA:  x<e>", {{1, "U:q\n", "U:q\nA:  x<e>"}}};
  EXPECT_EQ(located(prefix, conversation_of({"q", "x"}), marks), (Texts{"  x<e>"}));
  const RenderedTurns search{"U:q\nA:  x<e>", {{1, {}, {}}}};
  EXPECT_EQ(located(search, conversation_of({"q", "x"}), marks), (Texts{"*  x<e>"}));
  const TurnMarks bare{.generation_prompt = "", .header = " ", .end_of_turn = "<e>"};
  const RenderedTurns space{"q x<e>", {{1, "q", "q x<e>"}}};
  EXPECT_EQ(located(space, conversation_of({"q", "x"}), bare), (Texts{" x<e>"}));
}

TEST(LocateTurns, RefusesWhatNothingMarks) {
  const RenderedTurns rendered{"<u>q<e><a>x", {{1, {}, {}}}};
  const Conversation conversation = conversation_of({"q", "x"});
  EXPECT_EQ(code_of(rendered, conversation), "turn_not_located");
  EXPECT_EQ(code_of(rendered, conversation, {"<b>", "<b>", "<e>"}), "turn_not_located");
  EXPECT_EQ(code_of(rendered, conversation, {"<a>", "", "<e>"}), "turn_not_located");
  EXPECT_EQ(code_of(rendered, conversation, {"<a>", "<a>", ""}), "no_end_of_turn");
}

TEST(LocateTurns, NeverSearchesForWhatIsOnlyWhiteSpace) {
  // A header of one space stands everywhere: the question would be trained.
  const RenderedTurns rendered{"[q 1] x<e>", {{1, {}, "[q 1] x<e>"}}};
  EXPECT_EQ(code_of(rendered, conversation_of({"q 1", "x"}), {"", " ", "<e>"}), "ambiguous_turn");
}

TEST(LocateTurns, RefusesARowThatHoldsTheMarksIfItHadToSearch) {
  const RenderedTurns rendered{"<u>q<e><a>x<e>", {{1, {}, {}}}};
  EXPECT_EQ(code_of(rendered, conversation_of({"q", "x"})), "none");
  EXPECT_EQ(code_of(rendered, conversation_of({"say <a>", "x"})), "ambiguous_turn");
  EXPECT_EQ(code_of(rendered, conversation_of({"q", "x<e>"})), "ambiguous_turn");
  for (const char* key : {"reasoning_content", "thinking"}) {
    Conversation conversation = conversation_of({"q", "x"});
    conversation.messages[1][key] = "a <e> b";
    EXPECT_EQ(code_of(rendered, conversation), "ambiguous_turn") << key;
  }
  Conversation tools = conversation_of({"q", "x"});
  tools.tools = Json::parse(R"([{"function": {"name": "f", "description": "ends in <e>"}}])");
  EXPECT_EQ(code_of(rendered, tools), "ambiguous_turn");
  Conversation call = conversation_of({"q", "x"});
  call.messages[1]["tool_calls"] = Json::parse(R"([{"function": {"name": "x", "arguments": {"<a>": 1}}}])");
  EXPECT_EQ(code_of(rendered, call), "ambiguous_turn");
}

TEST(LocateTurns, WhatItFindsMustBeTheTurnsOwn) {
  const RenderedTurns rendered{"<u>q<e><a> X f<e>", {{1, {}, {}}}};
  EXPECT_EQ(code_of(rendered, conversation_of({"q", "x"})), "turn_not_located");
  EXPECT_EQ(code_of(rendered, conversation_of({"q", "\n X \u3000"})), "none");
  EXPECT_EQ(code_of(rendered, conversation_of({"q", "t</think>u</think> X"})), "none");
  EXPECT_EQ(code_of(rendered, conversation_of({"q", "X</think>u"})), "turn_not_located");
  Conversation call = conversation_of({"q", ""});
  call.messages[1]["tool_calls"] = Json::parse(R"([{"function": {"name": "f"}}, {"name": "g"}])");
  EXPECT_EQ(code_of(rendered, call), "turn_not_located");
  call.messages[1]["tool_calls"].erase(1);
  EXPECT_EQ(code_of(rendered, call), "none");
}

TEST(LocateTurns, ATurnDoesNotStartBeforeTheLastOneEnds) {
  // The template leaves the second answer out; what precedes it is a prefix, but lies in the first answer.
  const RenderedTurns rendered{"<u>q<e><a>x<e><a>y<e>",
                               {{1, "<u>q<e><a>", "<u>q<e><a>x<e>"}, {3, "<u>q<e><a>", {}}}};
  EXPECT_EQ(located(rendered, conversation_of({"q", "x", "r", "y"})), (Texts{"x<e>", "*y<e>"}));
}

}  // namespace
}  // namespace apus::data
