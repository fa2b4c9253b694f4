#include "apus/data/dataset.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer_config.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

const Tokenizer& tokenizer() {
  static const TokenizerFolder kFolder =
      load_tokenizer_folder(APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer");
  return *kFolder.tokenizer;
}

std::string ids_text(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
  return text;
}

DpoRow sample_row() {
  DpoRow row;
  row.prompt_ids = tokenizer().encode("Question?");
  row.chosen_ids = tokenizer().encode("yes<|im_end|>");
  row.rejected_ids = tokenizer().encode("no<|im_end|>");
  row.place = {0, 4};
  return row;
}

TEST(DescribeFirstPair, ShowsIdsTextsAndRunsOfIgnoredLabels) {
  const DpoRow row = sample_row();
  const std::string ignored = "[-100 * " + std::to_string(row.prompt_ids.size()) + "]";
  const std::string prompt = ids_text(row.prompt_ids), chosen = ids_text(row.chosen_ids),
                    rejected = ids_text(row.rejected_ids);
  const DpoDataset dataset({row}, {.files = {"a.jsonl"}, .note = "raw text"});
  EXPECT_EQ(describe_first_pair(dataset, tokenizer()),
            "first pair (a.jsonl:4), raw text\n"
            "[CHOSEN_INPUT_IDS] [" +
                prompt + ", " + chosen +
                "]\n"
                "[CHOSEN_INPUT] Question?yes<|im_end|>\n"
                "[CHOSEN_LABELS_IDS] [" +
                ignored + ", " + chosen +
                "]\n"
                "[CHOSEN_LABELS] " +
                ignored +
                "yes<|im_end|>\n"
                "[REJECTED_INPUT_IDS] [" +
                prompt + ", " + rejected +
                "]\n"
                "[REJECTED_INPUT] Question?no<|im_end|>\n"
                "[REJECTED_LABELS_IDS] [" +
                ignored + ", " + rejected +
                "]\n"
                "[REJECTED_LABELS] " +
                ignored + "no<|im_end|>");
}

TEST(DescribeFirstPair, ShowsACutPromptAsTheEngineSeesIt) {
  DpoRow row = sample_row();
  row.chosen_prompt_begin = static_cast<int32_t>(row.prompt_ids.size());
  row.rejected_prompt_begin = row.chosen_prompt_begin - 1;
  const std::string text = describe_first_pair(DpoDataset({row}), tokenizer());
  EXPECT_NE(text.find("[CHOSEN_INPUT] yes<|im_end|>\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[CHOSEN_LABELS_IDS] [[-100 * 1], "), std::string::npos) << text;
  EXPECT_NE(text.find("[REJECTED_INPUT] ?no<|im_end|>\n"), std::string::npos) << text;
}

TEST(DescribeFirstPair, SaysThatThereIsNone) {
  EXPECT_EQ(describe_first_pair(DpoDataset(std::vector<DpoRow>()), tokenizer()), "no pair");
}

TEST(DescribeFirstRow, ShowsLabelsAndWeightsAsRuns) {
  SftRow row;
  row.input_ids = tokenizer().encode("Question?yes<|im_end|>");
  const size_t prompt = tokenizer().encode("Question?").size(), size = row.input_ids.size();
  row.labels.assign(prompt, kIgnoredLabel);
  row.labels.insert(row.labels.end(), row.input_ids.begin() + static_cast<std::ptrdiff_t>(prompt),
                    row.input_ids.end());
  row.place = {0, 2};
  const std::string plain =
      describe_first_row(SftDataset({row}, {.files = {"a.jsonl"}, .note = "a rule"}), tokenizer());
  EXPECT_TRUE(plain.starts_with("first row (a.jsonl:2), a rule\n[INPUT_IDS] [" + ids_text(row.input_ids) +
                                "]\n[INPUT] Question?yes<|im_end|>\n[LABELS_IDS] [[-100 * " +
                                std::to_string(prompt) + "], "))
      << plain;
  EXPECT_TRUE(plain.ends_with("\n[LABELS] [-100 * " + std::to_string(prompt) + "]yes<|im_end|>")) << plain;
  row.weights.assign(prompt, 0.0f);
  row.weights.resize(size, 0.5f);
  EXPECT_EQ(describe_first_row(SftDataset({row}, {.files = {"a.jsonl"}, .note = "a rule"}), tokenizer()),
            plain + "\n[WEIGHTS] [0 * " + std::to_string(prompt) + ", 0.5 * " +
                std::to_string(size - prompt) + "]");
  row.weights.clear();
  row.channel = "code";
  EXPECT_EQ(describe_first_row(SftDataset({row}, {.files = {"a.jsonl"}, .note = "a rule"}), tokenizer()),
            plain + "\n[CHANNEL] code");
}

TEST(DescribeFirstRow, TheFirstTokenIsNeverTrained) {
  const std::vector<int32_t> ids = tokenizer().encode("yes<|im_end|>");
  const SftRow row{.input_ids = ids, .labels = ids, .weights = std::vector<float>(ids.size(), 2.0f)};
  const std::string text = describe_first_row(SftDataset({row}), tokenizer());
  EXPECT_NE(text.find("[LABELS_IDS] [[-100 * 1], "), std::string::npos) << text;
  EXPECT_NE(text.find("[WEIGHTS] [0 * 1, 2 * "), std::string::npos) << text;
  EXPECT_EQ(describe_first_row(SftDataset(std::vector<SftRow>{}), tokenizer()), "no row");
}

}  // namespace
}  // namespace apus::data
