#include "apus/data/dpo_rows.h"

#include "apus/base/error.h"
#include "apus/data/rows_report.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

const TokenizerFolder& tokenizer() {
  static const TokenizerFolder kFolder =
      load_tokenizer_folder(APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer");
  return kFolder;
}

DpoRow encoded(const std::string& line, const DpoEncodeOptions& options = {}) {
  return DpoEncoder(tokenizer(), options).encode_line(line);
}

std::string text_of(const std::vector<int32_t>& ids) {
  return tokenizer().tokenizer->decode(ids);
}

TEST(DpoEncoder, AppendsEosToRawAnswersUnlessTheyEndInIt) {
  const DpoRow row = encoded(R"({"prompt": "Q:\n", "chosen": "yes<|im_end|>", "rejected": "no"})",
                             {.use_chat_template = false});
  EXPECT_EQ(text_of(row.prompt_ids), "Q:\n");
  EXPECT_EQ(text_of(row.chosen_ids), "yes<|im_end|>");
  EXPECT_EQ(text_of(row.rejected_ids), "no<|im_end|>");
}

TEST(DpoEncoder, TokensThatMergeAcrossTheBorderBelongToTheCompletion) {
  // "Answer: " + "It" tokenises as ... ":" " It": the prompt's last token, a space, is no longer there.
  const auto& only = *tokenizer().tokenizer;
  const std::string prompt = "Answer: ";
  const DpoRow row =
      encoded(R"({"prompt": "Answer: ", "chosen": "It is", "rejected": "\n"})", {.use_chat_template = false});
  EXPECT_LT(row.prompt_ids.size(), only.encode(prompt).size());
  std::vector<int32_t> whole = row.prompt_ids;
  whole.insert(whole.end(), row.chosen_ids.begin(), row.chosen_ids.end());
  EXPECT_EQ(whole, only.encode(prompt + "It is<|im_end|>"));
  whole = row.prompt_ids;
  whole.insert(whole.end(), row.rejected_ids.begin(), row.rejected_ids.end());
  EXPECT_EQ(whole, only.encode(prompt + "\n<|im_end|>"));
}

TEST(DpoEncoder, StringsAreOneTurnOfAConversation) {
  const DpoRow strings = encoded(R"({"prompt": "q", "chosen": "yes", "rejected": "no"})");
  const DpoRow messages = encoded(R"({"prompt": [{"role": "user", "content": "q"}],
      "chosen": [{"role": "assistant", "content": "yes"}], "rejected": [{"role": "assistant", "content": "no"}]})");
  EXPECT_EQ(strings.prompt_ids, messages.prompt_ids);
  EXPECT_EQ(strings.chosen_ids, messages.chosen_ids);
  EXPECT_EQ(strings.rejected_ids, messages.rejected_ids);
  EXPECT_EQ(text_of(strings.prompt_ids),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(DpoEncoder, TrainsTheStopTokenThatTheTemplateWrites_Pitfall41) {
  const DpoRow row = encoded(R"({"prompt": "q", "chosen": "yes", "rejected": "no"})");
  EXPECT_EQ(text_of(row.chosen_ids), "yes<|im_end|>\n");
  EXPECT_EQ(text_of(row.rejected_ids), "no<|im_end|>\n");
}

TEST(DpoEncoder, ARowsOwnSystemTextGoesBeforeTheOption) {
  const DpoEncodeOptions options{.system = "Be brief."};
  const auto prompt = [&](const std::string& line) { return text_of(encoded(line, options).prompt_ids); };
  const std::string tail = "<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(prompt(R"({"prompt": "q", "chosen": "a", "rejected": "b"})"),
            "<|im_start|>system\nBe brief." + tail);
  EXPECT_EQ(prompt(R"({"prompt": "q", "chosen": "a", "rejected": "b", "system": "Own."})"),
            "<|im_start|>system\nOwn." + tail);
  EXPECT_EQ(prompt(R"({"prompt": [{"role": "system", "content": "Mine."}, {"role": "user", "content": "q"}],
      "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})"),
            "<|im_start|>system\nMine." + tail);
}

TEST(DpoEncoder, SaysWhichRuleItTakes) {
  TokenizerFolder plain = tokenizer();
  plain.chat_template.reset();
  EXPECT_EQ(DpoEncoder(tokenizer(), {}).string_rule(), StringRule::kChatTemplate);
  EXPECT_EQ(DpoEncoder(tokenizer(), {.use_chat_template = false}).string_rule(),
            StringRule::kRawBecauseOfOption);
  EXPECT_EQ(DpoEncoder(plain, {}).string_rule(), StringRule::kRawForLackOfOne);
}

TEST(DpoEncoder, RefusesWhatNeedsATemplateWhereThereIsNone) {
  TokenizerFolder plain = tokenizer();
  plain.chat_template.reset();
  const DpoEncoder encoder(plain, {});
  EXPECT_NE(
      message_of<RowRefused>([&] {
        encoder.encode_line(R"({"prompt": [{"role": "user", "content": "q"}],
                  "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})");
      }).find("message lists need a chat template: the tokenizer has none (--template chatml names one)"),
      std::string::npos);
  EXPECT_THROW(encoder.encode_line(R"({"prompt": "p", "chosen": "a", "rejected": "b", "system": "s"})"),
               RowRefused);
  EXPECT_NE(message_of<ConfigError>([&] { DpoEncoder(plain, {.system = "s"}); }).find("--system"),
            std::string::npos);
}

TEST(DpoEncoder, ATemplateMayRefuseARow) {
  TokenizerFolder strict = tokenizer();
  strict.chat_template =
      "{{ raise_exception('no such role') if messages[0]['content'] == 'bad' }}"
      "{% for m in messages %}{{ m['content'] }};{% endfor %}";
  const DpoEncoder encoder(strict, {});
  EXPECT_EQ(message_of<RowRefused>(
                [&] { encoder.encode_line(R"({"prompt": "bad", "chosen": "a", "rejected": "b"})"); }),
            "refused by the chat template: no such role");
  EXPECT_EQ(text_of(encoder.encode_line(R"({"prompt": "q", "chosen": "a", "rejected": "b"})").chosen_ids),
            "a;");
}

TEST(DpoEncoder, GivesTheTemplateToolsAndFurtherVariables) {
  TokenizerFolder folder = tokenizer();
  folder.chat_template =
      "{{ tools[0].function.name }}{{ mood }}:{% for m in messages %}{{ m['content'] }};{% endfor %}";
  const std::string line =
      R"({"prompt": "q", "chosen": "a", "rejected": "b", "tools": [{"name": "f"}], "margin": 2})";
  const DpoRow row = DpoEncoder(folder, {.template_kwargs = {{"mood", "calm"}}}).encode_line(line);
  EXPECT_EQ(text_of(row.prompt_ids), "fcalm:q;");
  EXPECT_EQ(text_of(row.chosen_ids), "a;");
  EXPECT_EQ(row.margin, 2.0f);
  EXPECT_EQ(encoded(R"({"prompt": "q", "chosen": "a", "rejected": "b"})").margin, std::nullopt);
  EXPECT_THROW(DpoEncoder(folder, {.template_kwargs = 3}), ConfigError);
  folder.chat_template.reset();
  EXPECT_THROW(DpoEncoder(folder, {.template_kwargs = {{"mood", "calm"}}}), ConfigError);
  EXPECT_THROW(DpoEncoder(folder, {}).encode_line(line), RowRefused);
}

TEST(DpoEncoder, EveryShapeOfAPairGivesTheSameTokens) {
  const DpoRow expected = encoded(R"({"prompt": "q", "chosen": "yes", "rejected": "no"})");
  const DpoEncodeOptions renamed{.columns = ColumnMap::parse(R"({"reply": "response"})")};
  for (const DpoRow& row :
       {encoded(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}],
                    "rejected_response": "no"})"),
        encoded(R"({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}],
                    "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "no"}]})"),
        encoded(R"({"query": "q", "reply": "yes", "rejected_response": "no"})", renamed)}) {
    EXPECT_EQ(row.prompt_ids, expected.prompt_ids);
    EXPECT_EQ(row.chosen_ids, expected.chosen_ids);
    EXPECT_EQ(row.rejected_ids, expected.rejected_ids);
  }
}

TEST(DpoEncoder, TrainsTheEndThoughItIsThePaddingToo_Pitfall41) {
  TokenizerFolder folder = tokenizer();
  folder.pad_id = folder.eos_id;
  folder.config.pad_token = folder.config.eos_token;
  const std::string line = R"({"prompt": "q", "chosen": "yes", "rejected": "no"})";
  EXPECT_EQ(text_of(DpoEncoder(folder, {}).encode_line(line).chosen_ids), "yes<|im_end|>\n");
  EXPECT_EQ(text_of(DpoEncoder(folder, {.use_chat_template = false}).encode_line(line).chosen_ids),
            "yes<|im_end|>");
}

/// The code that a row is dropped with.
std::string dropped(DpoRow row, int64_t limit, Truncation truncation) {
  try {
    fit_dpo_row(row, limit, truncation);
  } catch (const RowRefused& refused) {
    return refused.problem().code;
  }
  return "none";
}

TEST(FitDpoRow, DropsPairsByCode_Pitfall41) {
  EXPECT_EQ(dropped(make_pair(5, 3, 2), 5, Truncation::kRight), "prompt_too_long");
  EXPECT_EQ(dropped(make_pair(5, 3, 2), 7, Truncation::kDelete), "too_long");
  EXPECT_EQ(dropped(make_pair(5, 3, 0), 7, Truncation::kRight), "no_completion_token");
  EXPECT_EQ(dropped(make_pair(0, 3, 1), 7, Truncation::kLeft), "no_completion_token");
  EXPECT_EQ(dropped(make_pair(5, 3, 2), 7, Truncation::kLeft), "none");
}

TEST(FitDpoRow, LeavesARowThatFits) {
  DpoRow row = make_pair(5, 3, 2);
  EXPECT_EQ(fit_dpo_row(row, 8, Truncation::kDelete), RowFit::kWhole);
  EXPECT_EQ(fit_dpo_row(row, {}, Truncation::kDelete), RowFit::kWhole);
  EXPECT_EQ(row.chosen_ids.size(), 3u);
}

TEST(FitDpoRow, DeleteRefusesALongerRowWithTheArithmetic) {
  DpoRow row = make_pair(5, 3, 4);
  EXPECT_EQ(message_of<RowRefused>([&] { fit_dpo_row(row, 8, Truncation::kDelete); }),
            "longer than max_length: prompt 5 + rejected 4 = 9 tokens, max_length is 8 (truncation_strategy "
            "delete)");
}

TEST(FitDpoRow, RightKeepsTheStartOfEachAnswer) {
  DpoRow row = make_pair(5, 9, 2);
  EXPECT_EQ(fit_dpo_row(row, 8, Truncation::kRight), RowFit::kTruncated);
  EXPECT_EQ(row.chosen_ids, (std::vector<int32_t>{100, 101, 102}));
  EXPECT_EQ(row.rejected_ids.size(), 2u);
  EXPECT_EQ(row.chosen_prompt_begin, 0);
}

TEST(FitDpoRow, LeftKeepsTheEndOfEachSequence) {
  DpoRow row = make_pair(5, 6, 12);
  EXPECT_EQ(fit_dpo_row(row, 8, Truncation::kLeft), RowFit::kTruncated);
  EXPECT_EQ(row.chosen_prompt_begin, 3);
  EXPECT_EQ(row.chosen_length(), 8);
  EXPECT_EQ(row.chosen_ids.size(), 6u);
  EXPECT_EQ(row.rejected_prompt_begin, 5);
  EXPECT_EQ(row.rejected_ids.front(), 204);
  EXPECT_EQ(row.rejected_length(), 8);
}

TEST(FitDpoRow, APromptThatFillsMaxLengthIsRefusedUnderEveryStrategy) {
  for (const Truncation truncation : {Truncation::kDelete, Truncation::kRight, Truncation::kLeft}) {
    DpoRow row = make_pair(8, 1, 1);
    EXPECT_EQ(message_of<RowRefused>([&] { fit_dpo_row(row, 8, truncation); }),
              "prompt of max_length tokens or more: prompt has 8 tokens, max_length is 8");
  }
}

TEST(FitDpoRow, APairMustKeepATokenThatSomethingPredicts_Pitfall41) {
  DpoRow none = make_pair(3, 2, 0);
  EXPECT_EQ(message_of<RowRefused>([&] { fit_dpo_row(none, {}, Truncation::kDelete); }),
            "no completion token left: rejected has 0 tokens, 3 prompt tokens before them");
  DpoRow unpredicted = make_pair(0, 1, 2);
  EXPECT_EQ(message_of<RowRefused>([&] { fit_dpo_row(unpredicted, {}, Truncation::kDelete); }),
            "no completion token left: chosen has 1 tokens, 0 prompt tokens before them");
  DpoRow enough = make_pair(0, 2, 2);
  EXPECT_EQ(fit_dpo_row(enough, {}, Truncation::kDelete), RowFit::kWhole);
}

}  // namespace
}  // namespace apus::data
