#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/json.h"
#include "apus/base/log.h"
#include "apus/base/safetensors.h"
#include "apus/data/collator.h"
#include "apus/data/dpo_rows.h"
#include "apus/data/dpo_rows_json.h"
#include "apus/data/loader.h"
#include "apus/data/prepare.h"
#include "apus/data/row_stream.h"
#include "apus/data/sampler.h"
#include "tests/support/case_folder.h"

/// Rows of preference data against TRL's: token ids, dropped rows, which rows a micro-batch holds, and the
/// first micro-batch itself. A case is a folder with trajectory.json; one without rows of its own runs on
/// those of a sibling, which is a case too.
namespace apus::data {
namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& folder) {
  return fs::exists(folder / "trajectory.json");
}
bool has_rows(const fs::path& folder) {
  return fs::exists(folder / "rows.json") && fs::exists(folder / "train.jsonl");
}

/// The folder whose rows a run takes: its own, else that of a sibling made with the same max_length
/// (preferably "standard"), else the committed one.
fs::path rows_folder(const fs::path& run) {
  if (has_rows(run)) return run;
  const auto wanted = load_json_file(run / "trajectory.json").at("max_length");
  std::set<fs::path> fitting;
  for (const auto& entry : fs::directory_iterator(run.parent_path()))
    if (entry.is_directory() && has_rows(entry.path()) &&
        load_json_file(entry.path() / "rows.json").at("max_length") == wanted)
      fitting.insert(entry.path());
  if (fitting.contains(run.parent_path() / "standard")) return run.parent_path() / "standard";
  return fitting.empty() ? cases::committed_cases_root() / "dpo/standard" : *fitting.begin();
}

/// The text of every row of a file.
std::vector<std::string> texts_of(const fs::path& path) {
  std::vector<std::string> texts;
  RowStream stream({path, {}});
  RowBlock block;
  while (stream.next(block))
    for (int64_t i = 0; i < block.size(); ++i) texts.emplace_back(block.text(i));
  return texts;
}

/// A folder of rows with what they were made with.
struct RowCase {
  explicit RowCase(const fs::path& folder)
      : expected(load_json_file(folder / "rows.json")),
        texts(texts_of(folder / "train.jsonl")),
        tokenizer(load_tokenizer_folder(
            cases::require_for_case(folder, "tokenizer/tokenizer.json").parent_path())) {
    options.read.files = {(folder / "train.jsonl").string()};
    options.read.max_length = expected.at("max_length").is_null()
                                  ? std::nullopt
                                  : std::optional(expected.at("max_length").get<int64_t>());
    const bool keep_end = expected.value("truncation_mode", "keep_start") == "keep_end";
    options.read.truncation = keep_end ? Truncation::kLeft : Truncation::kRight;
    options.encode.use_chat_template = parse_dpo_example(texts.at(0)).is_conversation();
    options.workers = 2;
  }

  std::shared_ptr<const DpoDataset> prepared() const {
    NullLogger logger;
    return prepare_dpo(tokenizer, options, logger);
  }

  nlohmann::json expected;
  std::vector<std::string> texts;
  TokenizerFolder tokenizer;
  DpoPrepareOptions options;
};

std::vector<fs::path> row_folders() {
  std::set<fs::path> folders;
  for (const fs::path& folder : cases::find_cases("dpo", has_rows)) folders.insert(folder);
  return {folders.begin(), folders.end()};
}

std::vector<int64_t> stored(const SafetensorsFile& file, const std::string& name) {
  const TensorView& view = file.at(name);
  EXPECT_EQ(view.dtype, DType::kI64);
  std::vector<int64_t> values(view.data.size() / sizeof(int64_t));
  std::memcpy(values.data(), view.data.data(), view.data.size());
  return values;
}

std::vector<int64_t> values_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

void expect_batch(const Batch& batch, const SafetensorsFile& stored_batch) {
  const int64_t length = batch.layout->padded_length;
  std::vector<int64_t> attended(static_cast<size_t>(batch.tokens_T.numel()), 0), completion = attended;
  for (int64_t s = 0; s < batch.layout->batch(); ++s)
    for (int64_t p = 0; p < batch.layout->lengths[static_cast<size_t>(s)]; ++p)
      attended[static_cast<size_t>(s * length + p)] = 1;
  for (const int64_t row : values_of(batch.target_rows_M)) completion[static_cast<size_t>(row + 1)] = 1;
  EXPECT_EQ(stored_batch.at("input_ids").shape, (std::vector<int64_t>{batch.layout->batch(), length}));
  EXPECT_EQ(values_of(batch.tokens_T), stored(stored_batch, "input_ids"));
  EXPECT_EQ(attended, stored(stored_batch, "attention_mask"));
  EXPECT_EQ(completion, stored(stored_batch, "completion_mask"));
}

TEST(DpoRowsParity, TokenIdsOfEveryRowAreExact) {
  const auto folders = row_folders();
  ASSERT_FALSE(folders.empty());
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(cases::case_name(folder));
    const RowCase rows(folder);
    const DpoEncoder encoder(rows.tokenizer, rows.options.encode);
    EXPECT_FALSE(rows.expected.at("rows").empty());
    for (const auto& row : rows.expected.at("rows")) {
      SCOPED_TRACE("row " + row.at("index").dump());
      const DpoRow ours = encoder.encode_line(rows.texts.at(row.at("index").get<size_t>()));
      EXPECT_EQ(ours.prompt_ids, row.at("prompt_ids").get<std::vector<int32_t>>());
      EXPECT_EQ(ours.chosen_ids, row.at("chosen_ids").get<std::vector<int32_t>>());
      EXPECT_EQ(ours.rejected_ids, row.at("rejected_ids").get<std::vector<int32_t>>());
    }
  }
}

TEST(DpoRowsParity, TheSameRowsAreDropped) {
  for (const fs::path& folder : row_folders()) {
    SCOPED_TRACE(cases::case_name(folder));
    const RowCase rows(folder);
    const auto dataset = rows.prepared();
    std::vector<int64_t> kept, expected, dropped;
    for (int64_t i = 0; i < dataset->size(); ++i) kept.push_back(dataset->place(i).line - 1);
    for (const auto& row : rows.expected.at("rows")) expected.push_back(row.at("index"));
    EXPECT_EQ(kept, expected);
    const auto size = static_cast<int64_t>(rows.texts.size());
    for (int64_t i = 0; i < size; ++i)
      if (std::find(kept.begin(), kept.end(), i) == kept.end()) dropped.push_back(i);
    EXPECT_EQ(dropped, rows.expected.at("dropped").get<std::vector<int64_t>>());
    EXPECT_EQ(dataset->origin().report.input(), size);
  }
}

TEST(DpoRowsParity, TheFirstMicroBatchIsEqual) {
  int compared = 0;
  for (const fs::path& run : cases::find_cases("dpo", is_run)) {
    if (!fs::exists(run / "first_batch.safetensors")) continue;
    SCOPED_TRACE(cases::case_name(run));
    const RowCase rows(rows_folder(run));
    const auto trajectory = load_json_file(run / "trajectory.json");
    const auto ordinals = trajectory.at("rows_per_micro_batch").at(0).at(0).get<std::vector<int64_t>>();
    const CollateOptions padded{.pad_id = padding_id(rows.tokenizer)};
    expect_batch(rows.prepared()->collate(ordinals, padded),
                 SafetensorsFile(run / "first_batch.safetensors"));
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(DpoRowsParity, EveryMicroBatchHoldsTheSameRows) {
  const auto runs = cases::find_cases("dpo", is_run);
  ASSERT_FALSE(runs.empty());
  for (const fs::path& run : runs) {
    SCOPED_TRACE(cases::case_name(run));
    const auto dataset = RowCase(rows_folder(run)).prepared();
    const auto trajectory = load_json_file(run / "trajectory.json");
    const auto& hyper = trajectory.at("hyperparameters");
    const auto& expected = trajectory.at("rows_per_micro_batch");
    Loader loader(dataset, Sampler({.rows = dataset->size(), .shuffle = false}),
                  StepPlan({.rows = dataset->size(),
                            .micro_batch_rows = hyper.at("pairs_per_micro_batch"),
                            .accumulation = hyper.at("gradient_accumulation_steps")}),
                  {.workers = 2});
    EXPECT_FALSE(expected.empty());
    for (const auto& step : expected) {
      std::vector<std::vector<int64_t>> ours;
      for (const Batch& batch : loader.next().micro_batches) ours.push_back(batch.ordinals);
      EXPECT_EQ(ours, step.get<std::vector<std::vector<int64_t>>>());
    }
  }
}

}  // namespace
}  // namespace apus::data
