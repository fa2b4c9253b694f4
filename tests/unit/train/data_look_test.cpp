#include "apus/train/data_look.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/log.h"
#include "tests/support/scratch_folder.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

/// A folder with a tokenizer, and rows of plain text of 3, 2 and 40 words.
class DataLookTest : public testing::Test {
 protected:
  DataLookTest() {
    fs::copy(fs::path(APUS_SOURCE_DIR) / "tests/data/cases/dpo/tokenizer", folder_ / "model");
    options_.model = (folder_ / "model").string();
    nlohmann::json config = load_json_file(folder_ / "model/tokenizer_config.json");
    config.erase("model_max_length");
    folder_.put("model/tokenizer_config.json", config.dump());
    std::string words;
    for (int i = 0; i < 40; ++i) words += "word ";
    rows_ = folder_.put(
        "a.jsonl", "{\"text\": \"one two three\"}\n{\"text\": \"one two\"}\n{\"text\": \"" + words + "\"}\n");
    options_.dataset = {rows_.string()};
  }

  DataLook look(data::DataTask task = data::DataTask::kPretrain, int world = 1) {
    return look_at_data(resolve_dpo_job(options_, world),
                        {.task = task, .world = world, .clock = &clock_, .logger = &log_, .samples = 2});
  }

  ScratchFolder folder_;
  fs::path rows_;
  DpoJobOptions options_;
  SystemClock clock_;
  CaptureLogger log_;
};

TEST_F(DataLookTest, WithoutALimitEveryRowIsWhole) {
  const DataLook all = look();
  EXPECT_EQ(all.max_length, std::nullopt);
  EXPECT_EQ(all.train.report.whole(), 3);
  EXPECT_EQ(all.train.samples.size(), 2u);
  EXPECT_EQ(all.train.lengths.sequences, 3);
  EXPECT_EQ(all.train.lengths.trained_tokens, all.train.lengths.tokens - 3) << "all but the first of each";
  EXPECT_EQ(all.batches.tokens, all.train.lengths.tokens);
}

TEST_F(DataLookTest, TheModelsConfigBoundsRows) {
  folder_.put("model/config.json", R"({"max_position_embeddings": 32, "hidden_size": 16})");
  const DataLook bounded = look();
  EXPECT_EQ(bounded.max_length, 32);
  EXPECT_EQ(bounded.train.report.dropped(), 1);
  options_.max_length = 1000;
  EXPECT_EQ(look().max_length, 1000) << "the flag goes first";
}

TEST_F(DataLookTest, StepsFollowWorldAndBatch) {
  options_.gradient_accumulation_steps = 1;
  EXPECT_EQ(look().batches.steps, 3);
  EXPECT_EQ(look(data::DataTask::kPretrain, 2).batches.steps, 2);
  EXPECT_EQ(look().total_steps, 9);
  options_.max_steps = 5;
  EXPECT_EQ(look().total_steps, 5);
  options_.per_device_train_batch_size = 3;
  const DataLook padded = look();
  EXPECT_EQ(padded.batches.padded_tokens, 3 * padded.train.lengths.longest);
}

TEST_F(DataLookTest, PackingNeedsALength) {
  options_.packing = true;
  EXPECT_THROW(look(), ConfigError);
  options_.packing_length = 100;
  const DataLook packed = look();
  ASSERT_TRUE(packed.packing.has_value());
  EXPECT_EQ(packed.packing->report.rows, 3);
  EXPECT_EQ(packed.batches.padded_tokens, packed.batches.tokens);
}

TEST_F(DataLookTest, RowsOfAnotherTaskAreRefused) {
  EXPECT_THROW(look(data::DataTask::kDpo), DataError);
  EXPECT_THROW(look(data::DataTask::kTokenRows), DataError);
}

TEST_F(DataLookTest, TheObjectHasTheNumbersOfTheLook) {
  options_.val_dataset = {rows_.string() + "#1"};
  const DataLook all = look();
  const nlohmann::ordered_json json = to_json(all);
  EXPECT_EQ(json.at("task"), "pt");
  EXPECT_TRUE(json.at("max_length").is_null());
  EXPECT_EQ(json.at("dataset").at("rows").at("read"), 3);
  EXPECT_EQ(json.at("dataset").at("rows").at("by_file").at(0).at("file"), rows_.string());
  EXPECT_EQ(json.at("dataset").at("lengths").at("tokens"), all.train.lengths.tokens);
  EXPECT_EQ(json.at("dataset").at("lengths").at("percentiles").at("99"), all.train.lengths.longest);
  EXPECT_EQ(json.at("dataset").at("first_rows").at(0).at("place"), rows_.string() + ":1");
  EXPECT_EQ(json.at("val_dataset").at("rows").at("read"), 1);
  int64_t sequences = 0;
  for (const auto& bin : json.at("dataset").at("lengths").at("histogram"))
    sequences += bin.at("sequences").get<int64_t>();
  EXPECT_EQ(sequences, 3);
}

}  // namespace
}  // namespace apus::train
