#include <array>

#include "apus/base/clock.h"
#include "apus/base/file.h"
#include "apus/data/rows_report.h"
#include "apus/data/sft_rows.h"
#include "tests/unit/data/support/rows_fixture.h"

/// The same conversation through templates in the manner of many families: whatever they write around it, the
/// answers and their ends are trained and nothing that anybody else said is.
namespace apus::data {
namespace {

using Texts = std::vector<std::string>;

/// A way of writing conversations, and what a trained turn is between.
struct Family {
  const char* name;
  const char* source;
  const char* before;
  const char* after;
};

constexpr std::array<Family, 9> kFamilies = {{
    {"headers of special tokens, contents trimmed",
     "{{ bos_token }}{% for m in messages %}{{ '<|h|>' ~ m.role ~ '<|/h|>\\n\\n' ~ m.content | trim ~ "
     "'<|eot|>' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|h|>assistant<|/h|>\\n\\n' }}{% endif %}",
     "", "<|eot|>"},
    {"brackets around questions, bare answers",
     "{{ bos_token }}{% for m in messages %}{{ '[Q] ' ~ m.content ~ ' [/Q]' if m.role == 'user' else ' ' ~ "
     "m.content ~ eos_token }}"
     "{% endfor %}",
     " ", "<|im_end|>"},
    {"brackets, no space",
     "{% for m in messages %}{{ '[Q]' ~ m.content ~ '[/Q]' if m.role == 'user' else m.content ~ eos_token "
     "}}{% endfor %}",
     "", "<|im_end|>"},
    {"a role of another name",
     "{% for m in messages %}{{ '<turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\\n' ~ "
     "m.content ~ '</turn>\\n' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<turn>model\\n' }}{% endif %}",
     "", "</turn>"},
    {"wide marks",
     "{% for m in messages %}{{ '<｜Q｜>' ~ m.content if m.role == 'user' else '<｜A｜>' ~ m.content ~ "
     "'<｜end｜>' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<｜A｜>' }}{% endif %}",
     "", "<｜end｜>"},
    {"a prompt that opens thoughts",
     "{% for m in messages %}{{ '<u>' ~ m.content if m.role == 'user' else '<a>' ~ m.content ~ '<end>' }}{% "
     "endfor %}"
     "{% if add_generation_prompt %}{{ '<a><think>\\n' }}{% endif %}",
     "", "<end>"},
    {"words and a colon",
     "{% for m in messages %}{{ ('USER: ' if m.role == 'user' else 'BOT: ') ~ m.content ~ ('\\n' if m.role "
     "== 'user' else '</s>\\n') }}"
     "{% endfor %}{% if add_generation_prompt %}{{ 'BOT:' }}{% endif %}",
     " ", "</s>"},
    {"words and a colon, never prompted",
     "{% for m in messages %}{{ ('USER: ' if m.role == 'user' else 'BOT: ') ~ m.content ~ ('\\n' if m.role "
     "== 'user' else '</s>\\n') }}"
     "{% endfor %}",
     " ", "</s>"},
    {"another end on the last turn",
     "{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ m.content ~ ('<done>' if loop.last and m.role == "
     "'assistant' and not "
     "add_generation_prompt else '<end>') }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% "
     "endif %}",
     "", "*"},
}};

TokenizerFolder folder_with(const std::string& chat_template) {
  static const TokenizerFolder kFolder =
      load_tokenizer_folder(APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer");
  TokenizerFolder folder = kFolder;
  folder.config.bos_token = "<s>";
  folder.chat_template = chat_template;
  return folder;
}

constexpr const char* kRow =
    R"({"messages": [{"role": "user", "content": "question 1"}, {"role": "assistant", "content": "answer 1"},
        {"role": "user", "content": "question 2"}, {"role": "assistant", "content": "answer 2"},
        {"role": "user", "content": "question 3"}, {"role": "assistant", "content": "answer 3"}]})";

/// The trained texts, by a scan of the labels.
Texts trained(const TokenizerFolder& folder) {
  const ManualClock clock;
  const SftRow row = SftEncoder(folder, {.clock = &clock}).encode_line(kRow);
  Texts texts;
  std::vector<int32_t> run;
  for (size_t i = 0; i <= row.labels.size(); ++i) {
    if (i < row.labels.size() && row.labels[i] != kIgnoredLabel) {
      EXPECT_EQ(row.labels[i], row.input_ids[i]);
      run.push_back(row.labels[i]);
    } else if (!run.empty()) {
      texts.push_back(folder.tokenizer->decode(run));
      run.clear();
    }
  }
  return texts;
}

TEST(SftFamilies, AnswersAndTheirEndsAreTrainedAndNothingElse) {
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const std::string before = family.before, after = family.after;
    Texts expected;
    for (const char* number : {"1", "2", "3"})
      expected.push_back(before + "answer " + number +
                         (after == "*" ? *number == '3' ? "<done>" : "<end>" : after));
    EXPECT_EQ(trained(folder_with(family.source)), expected);
  }
}

TEST(SftFamilies, TheSameHoldsForTheRecordedTemplates) {
  for (const char* name : {"qwen25", "qwen3", "coder_xml", "chatml_oneline", "chatml_generation"}) {
    SCOPED_TRACE(name);
    const std::string path =
        std::string(APUS_SOURCE_DIR "/tests/data/cases/chat_template/templates/") + name + ".jinja";
    // Qwen3 writes an empty thought before the last answer of a conversation.
    const std::string last = std::string(name) == "qwen3" ? "<think>\n\n</think>\n\nanswer 3" : "answer 3";
    EXPECT_EQ(trained(folder_with(read_file(path))),
              (Texts{"answer 1<|im_end|>", "answer 2<|im_end|>", last + "<|im_end|>"}));
  }
}

TEST(SftFamilies, ATemplateThatMovesItsPromptAboutIsRefusedWhereNothingMarksItsAnswers) {
  // Whoever has the last word gets the system text, so that no rendering is a prefix of another, and the
  // answers are bare: searching for " " would train questions.
  const TokenizerFolder folder = folder_with(
      "{% for m in messages %}{% if m.role == 'user' %}{{ '[Q] ' ~ ('be kind ' if loop.last else '') ~ "
      "m.content ~ '[/Q]' }}"
      "{% else %}{{ ' ' ~ m.content ~ eos_token }}{% endif %}{% endfor %}");
  try {
    trained(folder);
    FAIL() << "trained something";
  } catch (const RowRefused& refused) {
    EXPECT_TRUE(refused.problem().code == "ambiguous_turn" || refused.problem().code == "turn_not_located")
        << refused.what();
  }
}

}  // namespace
}  // namespace apus::data
