#include "data/turn_marks.h"

#include <nlohmann/json.hpp>

#include "apus/base/file.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

TurnMarks learned(const std::string& source, const Json& kwargs = nullptr) {
  const ChatTemplate chat(JinjaTemplate::parse(source, "test"), {.bos = "<s>", .eos = "</s>"});
  return learn_turn_marks(chat, kwargs, nullptr);
}

void expect_marks(const TurnMarks& marks, const std::string& prompt, const std::string& header,
                  const std::string& end) {
  EXPECT_EQ(marks.generation_prompt, prompt);
  EXPECT_EQ(marks.header, header);
  EXPECT_EQ(marks.end_of_turn, end);
}

TurnMarks learned_from(const std::string& name, const Json& kwargs = nullptr) {
  return learned(read_file(APUS_SOURCE_DIR "/tests/data/cases/chat_template/templates/" + name + ".jinja"),
                 kwargs);
}

/// ChatML around `content`, an expression of m and loop.
std::string chatml(const std::string& content, const std::string& prompt = "<|im_start|>assistant\\n") {
  return "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ (" + content +
         ") ~ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '" + prompt + "' }}{% endif %}";
}

TEST(LearnTurnMarks, ReadsThemOffOrdinaryTemplates) {
  for (const char* name : {"qwen25", "qwen3", "coder_xml", "chatml_oneline", "chatml_generation"}) {
    SCOPED_TRACE(name);
    expect_marks(learned_from(name), "<|im_start|>assistant\n", "<|im_start|>assistant\n", "<|im_end|>");
  }
}

TEST(LearnTurnMarks, HeaderIsWhatPromptAndHistoryShare) {
  expect_marks(learned_from("qwen3", {{"enable_thinking", false}}),
               "<|im_start|>assistant\n<think>\n\n</think>\n\n", "<|im_start|>assistant\n", "<|im_end|>");
  expect_marks(learned(chatml("m.content", "<|im_start|>assistant\\n<think>\\n")),
               "<|im_start|>assistant\n<think>\n", "<|im_start|>assistant\n", "<|im_end|>");
}

TEST(LearnTurnMarks, WithoutAPromptTheHeaderIsWhatStandsBeforeAnAnswer) {
  expect_marks(
      learned("{% for m in messages %}{{ '[' ~ m.content ~ ']' if m.role == 'user' else ' ' ~ m.content "
              "~ eos_token ~ '\\n' }}{% endfor %}"),
      "", " ", "</s>");
}

TEST(LearnTurnMarks, AnEndThatDiffersOnTheLastTurnIsTheOneOfHistory) {
  expect_marks(learned(chatml("m.content ~ ('<last>' if loop.last and m.role == 'assistant' and not "
                              "add_generation_prompt else '')")),
               "<|im_start|>assistant\n", "<|im_start|>assistant\n", "<|im_end|>");
}

TEST(LearnTurnMarks, APromptThatOnlyAUserGetsIsNoPartOfTheEnd) {
  expect_marks(
      learned("{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ m.content ~ '<e>\\n' }}{% endfor %}"
              "{% if add_generation_prompt and messages[-1].role == 'user' %}{{ '<assistant>' }}{% endif %}"),
      "<assistant>", "<assistant>", "<e>");
}

TEST(LearnTurnMarks, CaseOfHistoryDoesNotMatter) {
  for (const char* filter : {"upper", "lower", "title", "capitalize", "trim"}) {
    SCOPED_TRACE(filter);
    expect_marks(learned(chatml("m.content if loop.last else m.content | " + std::string(filter))),
                 "<|im_start|>assistant\n", "<|im_start|>assistant\n", "<|im_end|>");
  }
}

TEST(LearnTurnMarks, FindsNothingInTemplatesThatHideIt) {
  expect_marks(learned("{% for m in messages %}{{ m.content ~ '\\n' }}{% endfor %}"), "", "", "");
  expect_marks(learned("{{ raise_exception('no') }}"), "", "", "");
  EXPECT_EQ(learned("{% for m in messages[-2:] %}{{ '<' ~ m.role ~ '>' ~ m.content ~ '<e>' }}{% endfor %}"
                    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}")
                .header,
            "");
}

TEST(BlocksLeaveEndOut, LooksIntoTheBlockOfAnAnswer) {
  const auto leaves = [](const std::string& source) {
    const ChatTemplate chat(JinjaTemplate::parse(source, "test"));
    return blocks_leave_end_out(chat, nullptr, nullptr, "<e>");
  };
  const std::string head = "{% for m in messages %}{{ m.role ~ ':' }}{% generation %}{{ m.content";
  EXPECT_TRUE(leaves(head + "}}{% endgeneration %}{{ '<e>' }}{% endfor %}"));
  EXPECT_FALSE(leaves(head + " ~ '<e>' }}{% endgeneration %}{% endfor %}"));
  EXPECT_FALSE(leaves("{% for m in messages %}{{ m.content ~ '<e>' }}{% endfor %}"));
  EXPECT_FALSE(leaves("{{ raise_exception('no') }}"));
}

}  // namespace
}  // namespace apus::data
