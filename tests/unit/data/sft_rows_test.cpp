#include "apus/data/sft_rows.h"

#include <thread>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/data/conversation.h"
#include "apus/data/row_notes.h"
#include "apus/data/rows_report.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Texts = std::vector<std::string>;

/// A template of this family, with generation blocks or without.
constexpr const char* kPlain =
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr const char* kBlocks =
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' }}{% if m.role == 'assistant' and (all or "
    "loop.last) %}{% generation %}{{ m.content ~ '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content ~ "
    "'<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}";
constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "one"},
        {"role": "user", "content": "r"}, {"role": "assistant", "content": "two"}]})";
constexpr const char* kFirstOff =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "one", "loss": false},
        {"role": "user", "content": "r"}, {"role": "assistant", "content": "two"}]})";

TokenizerFolder folder_with(std::optional<std::string> chat_template) {
  static const TokenizerFolder kFolder =
      load_tokenizer_folder(APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer");
  TokenizerFolder folder = kFolder;
  folder.chat_template = std::move(chat_template);
  return folder;
}

std::string decoded(const std::vector<int32_t>& ids) {
  return folder_with({}).tokenizer->decode(ids);
}

/// The runs of trained tokens.
Texts trained(const SftRow& row) {
  Texts texts;
  std::vector<int32_t> run;
  for (size_t i = 0; i <= row.labels.size(); ++i) {
    if (i < row.labels.size() && row.labels[i] != kIgnoredLabel) {
      run.push_back(row.labels[i]);
    } else if (!run.empty()) {
      texts.push_back(decoded(run));
      run.clear();
    }
  }
  return texts;
}

Texts trained(const std::string& line, const std::string& chat = kPlain,
              const SftEncodeOptions& options = {}) {
  return trained(SftEncoder(folder_with(chat), options).encode_line(line));
}

std::string code_of(const SftEncoder& encoder, const std::string& line) {
  try {
    encoder.encode_line(line);
  } catch (const RowRefused& refused) {
    return refused.problem().code;
  }
  return "none";
}

TEST(SftEncoder, TrainsTurnsAndTheirEndsButNotTheNewlineBehind) {
  const SftRow row = SftEncoder(folder_with(kPlain), {}).encode_line(kTwoTurns);
  EXPECT_EQ(
      decoded(row.input_ids),
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"
      "<|im_start|>assistant\ntwo<|im_end|>\n");
  EXPECT_EQ(trained(row), (Texts{"one<|im_end|>", "two<|im_end|>"}));
  EXPECT_TRUE(row.weights.empty());
}

TEST(SftEncoder, WeighsTurnsAsTheRowSays) {
  const SftRow row =
      SftEncoder(folder_with(kPlain), {})
          .encode_line(
              R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "one", "loss_scale": 0.5},
          {"role": "assistant", "content": "two"}]})");
  ASSERT_EQ(row.weights.size(), row.labels.size());
  for (size_t i = 0; i < row.labels.size(); ++i)
    EXPECT_EQ(row.weights[i] > 0.0f, row.labels[i] != kIgnoredLabel) << i;
  EXPECT_EQ(*std::ranges::max_element(row.weights), 1.0f);
  const auto tokens = [](const char* text) {
    return static_cast<std::ptrdiff_t>(folder_with({}).tokenizer->encode(text).size());
  };
  EXPECT_EQ(std::ranges::count(row.weights, 0.5f), tokens("one<|im_end|>"));
  EXPECT_EQ(std::ranges::count(row.weights, 1.0f), tokens("two<|im_end|>"));
  EXPECT_EQ(trained(kFirstOff), (Texts{"two<|im_end|>"}));
}

TEST(SftEncoder, TakesGenerationBlocksAsTheyAre) {
  const SftEncodeOptions all{.template_kwargs = {{"all", true}}};
  EXPECT_EQ(trained(kTwoTurns, kBlocks, all), (Texts{"one<|im_end|>", "two<|im_end|>"}));
  EXPECT_EQ(trained(kFirstOff, kBlocks, all), (Texts{"two<|im_end|>"}));
  EXPECT_EQ(trained(kTwoTurns, kBlocks), (Texts{"two<|im_end|>"}));
  EXPECT_EQ(code_of(SftEncoder(folder_with(kBlocks), {}), kFirstOff), "generation_blocks");
}

TEST(SftEncoder, WarnsOfAnEndThatStaysUntrained_Pitfall41) {
  const std::string head =
      "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' }}{% if m.role == 'assistant' %}{% "
      "generation %}"
      "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\\n' }}{% endfor "
      "%}";
  const SftEncoder encoder(folder_with(head), {});
  ASSERT_EQ(encoder.warnings().size(), 1u);
  EXPECT_NE(encoder.warnings()[0].find("leave out '<|im_end|>'"), std::string::npos);
  EXPECT_EQ(trained(encoder.encode_line(kTwoTurns)), (Texts{"one", "two"}));
  EXPECT_TRUE(SftEncoder(folder_with(kBlocks), {.template_kwargs = {{"all", true}}}).warnings().empty());
  EXPECT_TRUE(SftEncoder(folder_with(kPlain), {}).warnings().empty());
}

TEST(SftEncoder, TrainsTheEndThoughItIsThePaddingToo_Pitfall41) {
  TokenizerFolder folder = folder_with(kPlain);
  folder.pad_id = folder.eos_id;
  folder.config.pad_token = folder.config.eos_token;
  EXPECT_EQ(trained(SftEncoder(folder, {}).encode_line(kTwoTurns)),
            (Texts{"one<|im_end|>", "two<|im_end|>"}));
  EXPECT_EQ(trained(SftEncoder(folder, {}).encode_line(R"({"text": "raw"})")), (Texts{"raw<|im_end|>"}));
}

TEST(SftEncoder, TakesTextsWhole) {
  const SftEncoder encoder(folder_with({}), {.task = SftTask::kPretrain});
  EXPECT_EQ(trained(encoder.encode_line(R"({"text": "raw\n"})")), (Texts{"raw\n<|im_end|>"}));
  EXPECT_EQ(trained(encoder.encode_line(R"({"text": "raw<|im_end|>"})")), (Texts{"raw<|im_end|>"}));
  EXPECT_EQ(trained(encoder.encode_line(R"({"messages": [{"role": "assistant", "content": "one"}]})")),
            (Texts{"one<|im_end|>"}));
  EXPECT_EQ(encoder.encode_line(R"({"messages": [{"role": "assistant", "content": "one", "loss_scale": 2}]})")
                .weights[0],
            2.0f);
  EXPECT_EQ(code_of(encoder, kTwoTurns), "unknown_form");
  EXPECT_EQ(code_of(encoder, R"({"messages": [{"role": "user", "content": "one"}]})"), "unknown_form");
  TokenizerFolder endless = folder_with({});
  endless.eos_id.reset();
  const SftEncoder without(endless, {});
  EXPECT_EQ(trained(without.encode_line(R"({"text": "raw"})")), (Texts{"raw"}));
  EXPECT_EQ(without.warnings().size(), 1u);
}

TEST(SftEncoder, PutsASystemTextWhereTheRowHasNone) {
  const SftEncoder encoder(folder_with(kPlain), {.system = "Brief."});
  const auto text = [&](const std::string& line) { return decoded(encoder.encode_line(line).input_ids); };
  EXPECT_EQ(text(R"({"query": "q", "response": "a"})").find("<|im_start|>system\nBrief.<|im_end|>"), 0u);
  EXPECT_EQ(text(R"({"query": "q", "response": "a", "system": "Own."})").find("<|im_start|>system\nOwn."),
            0u);
}

TEST(SftEncoder, RenamesColumnsBeforeLookingForAShape) {
  const SftEncodeOptions options{.columns = ColumnMap::parse(R"({"q": "query", "a": "response"})")};
  EXPECT_EQ(trained(R"({"q": "x", "a": "y"})", kPlain, options), (Texts{"y<|im_end|>"}));
  EXPECT_EQ(code_of(SftEncoder(folder_with(kPlain), options), R"({"q": "x", "a": "y", "query": "z"})"),
            "column_collision");
}

TEST(SftEncoder, LossScaleChoosesWhatTheRowDoesNotSay) {
  EXPECT_EQ(trained(kTwoTurns, kPlain, {.loss_scale = LossScale::kLastRound}), (Texts{"two<|im_end|>"}));
  EXPECT_EQ(trained(R"({"messages": [{"role": "user", "content": "q"},
                        {"role": "assistant", "content": "one", "loss": true}, {"role": "user", "content": "r"},
                        {"role": "assistant", "content": "two"}]})",
                    kPlain, {.loss_scale = LossScale::kLastRound}),
            (Texts{"one<|im_end|>", "two<|im_end|>"}));
  EXPECT_EQ(trained(kTwoTurns, kPlain, {.loss_scale = LossScale::kAll}).size(), 1u);
  EXPECT_EQ(trained(kFirstOff, kPlain, {.loss_scale = LossScale::kAll}),
            (Texts{"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
                   "\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n"}));
  EXPECT_EQ(parse_loss_scale("default"), LossScale::kDefault);
  EXPECT_EQ(parse_loss_scale("last_round"), LossScale::kLastRound);
  EXPECT_EQ(parse_loss_scale("all"), LossScale::kAll);
  EXPECT_NE(message_of<NotSupported>([] { parse_loss_scale("react"); }).find("--loss_scale react"),
            std::string::npos);
}

TEST(SftEncoder, NamesTheFlagThatGivesABaseModelATemplate) {
  EXPECT_NE(message_of<RowRefused>([] {
              SftEncoder(folder_with({}), {}).encode_line(kTwoTurns);
            }).find("--template chatml"),
            std::string::npos);
}

TEST(SftEncoder, RefusesRowsByCode) {
  EXPECT_EQ(code_of(SftEncoder(folder_with({}), {}), kTwoTurns), "no_template");
  EXPECT_EQ(code_of(SftEncoder(folder_with(kPlain), {}), "{"), "bad_json");
  EXPECT_EQ(code_of(SftEncoder(folder_with(kPlain), {}), "[]"), "bad_json");
  EXPECT_EQ(code_of(SftEncoder(folder_with("{{ raise_exception('no') }}"), {}), kTwoTurns), "template_error");
  const SftEncoder endless(folder_with("{% for m in messages %}{{ m.content ~ '\\n' }}{% endfor %}"), {});
  EXPECT_EQ(code_of(endless, kTwoTurns), "no_end_of_turn");
  EXPECT_EQ(endless.warnings().size(), 1u);
}

TEST(SftEncoder, RefusesOptionsThatHaveNoPlace) {
  EXPECT_THROW(SftEncoder(folder_with({}), {.system = "s"}), ConfigError);
  EXPECT_THROW(SftEncoder(folder_with(kPlain), {.task = SftTask::kPretrain, .system = "s"}), ConfigError);
  EXPECT_THROW(SftEncoder(folder_with(kPlain), {.template_kwargs = 3}), ConfigError);
  EXPECT_THROW(SftEncoder(folder_with(kPlain), {.template_kwargs = {{"messages", 1}}}), ConfigError);
  EXPECT_THROW(SftEncoder(folder_with("{% if %}"), {}), JinjaError);
}

TEST(SftEncoder, GivesTheTemplateItsClockAndTools) {
  const ManualClock clock;
  const std::string chat = "{{ strftime_now('%Y') }}{{ tools | tojson }}" + std::string(kPlain);
  const std::string line = R"({"query": "q", "response": "a", "tools": "[{\"name\": \"f\"}]"})";
  const SftEncoder encoder(folder_with(chat), {.clock = &clock});
  EXPECT_NE(decoded(encoder.encode_line(line).input_ids)
                .find(R"([{"type": "function", "function": {"name": "f"}}]<|im_start|>)"),
            std::string::npos);
  EXPECT_EQ(code_of(SftEncoder(folder_with(chat), {}), line), "template_error");
}

TEST(SftEncoder, MayBeSharedByThreads) {
  const SftEncoder encoder(folder_with(kPlain), {});
  const SftRow expected = encoder.encode_line(kTwoTurns);
  std::vector<int> equal(4, 0);
  {
    std::vector<std::jthread> threads;
    for (int& count : equal)
      threads.emplace_back([&encoder, &expected, &count] {
        for (int i = 0; i < 20; ++i) count += encoder.encode_line(kTwoTurns).labels == expected.labels;
      });
  }
  EXPECT_EQ(equal, std::vector<int>(4, 20));
}

TEST(SftEncoder, SaysItsRule) {
  EXPECT_NE(SftEncoder(folder_with(kPlain), {}).rule_text().find("before and through"), std::string::npos);
  EXPECT_NE(SftEncoder(folder_with(kBlocks), {}).rule_text().find("generation blocks"), std::string::npos);
  EXPECT_NE(SftEncoder(folder_with({}), {}).rule_text().find("refused"), std::string::npos);
  EXPECT_EQ(
      SftEncoder(folder_with(kPlain), {.task = SftTask::kPretrain}).rule_text().find("texts are trained"),
      0u);
}

TEST(SftEncoder, NotesACallWhoseNameStandsElsewhereThanInItsTurn) {
  const std::string with_tools = "{% for t in tools or [] %}{{ t.function.name ~ '\\n' }}{% endfor %}";
  const std::string row = R"({"tools": [{"name": "get_time"}], "messages": [{"role": "user", "content": )"
                          R"("get_time, please"}, {"role": "assistant", "content": "", )"
                          R"("tool_calls": [{"function": {"name": "get_time", "arguments": {}}}]}]})";
  for (const LossScale scale : {LossScale::kDefault, LossScale::kLastRound}) {
    RowNotes notes;
    const SftEncoder encoder(folder_with(with_tools + kPlain), {.loss_scale = scale});
    EXPECT_EQ(trained(encoder.encode_line(row, notes)), (Texts{"<|im_end|>"}));
    EXPECT_TRUE(notes.leaves_tools_out);
  }
  RowNotes notes;
  const SftEncoder encoder(folder_with(with_tools + kPlain), {});
  encoder.encode_line(R"({"tools": [{"name": "get_time"}], "query": "q", "response": "a"})", notes);
  EXPECT_FALSE(notes.leaves_tools_out);
}

TEST(SftEncoder, RowsKeepTheirChannelUnderEveryShape) {
  const SftEncoder chat(folder_with(kPlain), {});
  EXPECT_EQ(chat.encode_line(R"({"query": "a", "response": "b", "channel": "code"})").channel, "code");
  EXPECT_EQ(chat.encode_line(R"({"text": "a", "channel": "web"})").channel, "web");
  EXPECT_EQ(chat.encode_line(R"({"text": "a"})").channel, "");
  const SftEncoder texts(folder_with({}), {.task = SftTask::kPretrain});
  EXPECT_EQ(
      texts.encode_line(R"({"messages": [{"role": "assistant", "content": "x"}], "channel": 5})").channel,
      "5");
  const SftEncoder renamed(
      folder_with({}), {.task = SftTask::kPretrain, .columns = ColumnMap::parse(R"({"source": "channel"})")});
  EXPECT_EQ(renamed.encode_line(R"({"text": "a", "source": "books"})").channel, "books");
}

}  // namespace
}  // namespace apus::data
