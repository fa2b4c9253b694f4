#include "data/tool_notes.h"

#include <gtest/gtest.h>

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

Json calling(const std::string& arguments) {
  return Json::parse(R"({"role": "assistant", "tool_calls": [{"function": {"name": "get_weather", )"
                     R"("arguments": )" +
                     arguments + "}}]}");
}

TEST(HoldsCalls, AsksForEveryName) {
  EXPECT_TRUE(holds_calls("call get_weather {}", calling("{}")));
  EXPECT_FALSE(holds_calls("call weather {}", calling("{}")));
  EXPECT_FALSE(holds_calls("", Json::parse(R"({"tool_calls": [{"name": "f"}]})")));
  for (const char* without : {R"({"content": "a"})", R"({"tool_calls": []})", R"({"tool_calls": [{}, 3]})"})
    EXPECT_TRUE(holds_calls("", Json::parse(without))) << without;
}

TEST(NoteCalls, NotesWhatIsLeftOutAndWhatIsQuoted) {
  const auto noted = [](const std::string& arguments, const std::string& text) {
    RowNotes notes;
    note_calls(calling(arguments), text, notes);
    return std::pair(notes.leaves_tools_out, notes.quotes_arguments);
  };
  EXPECT_EQ(noted("{}", "get_weather {}"), std::pair(false, false));
  EXPECT_EQ(noted("{}", "nothing"), std::pair(true, false));
  const char* const text = R"("{\"x\": 1}")";
  EXPECT_EQ(noted(text, R"(get_weather "{\"x\": 1}")"), std::pair(false, true));
  EXPECT_EQ(noted(text, R"(get_weather {"x": 1})"), std::pair(false, false)) << "printed as it is";
  EXPECT_EQ(noted(R"("plain")", R"(get_weather "plain")"), std::pair(false, false)) << "no JSON object";
}

TEST(NoteTools, AsksForEveryTool) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f1"}}, {"name": "f2"}])");
  RowNotes both, one, none;
  note_tools(tools, "f1 f2", both);
  note_tools(tools, "f2", one);
  note_tools(nullptr, "", none);
  EXPECT_FALSE(both.leaves_tools_out);
  EXPECT_TRUE(one.leaves_tools_out);
  EXPECT_FALSE(none.leaves_tools_out);
}

}  // namespace
}  // namespace apus::data
