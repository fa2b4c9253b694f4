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
    return look_at_data(resolve_job(options_, world),
                        {.task = task, .world = world, .clock = &clock_, .logger = &log_, .samples = 2});
  }

  ScratchFolder folder_;
  fs::path rows_;
  JobOptions options_;
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

TEST_F(DataLookTest, WhereNoRowIsUsableTheCountsAreThere) {
  for (const data::DataTask task : {data::DataTask::kDpo, data::DataTask::kTokenRows}) {
    const DataLook none = look(task);
    EXPECT_NE(none.error.find("no usable row (--dataset)"), std::string::npos) << none.error;
    EXPECT_EQ(none.train.report.dropped(), 3);
    EXPECT_FALSE(none.train.report.reasons().empty());
    ASSERT_EQ(none.train.files.size(), 1u);
    EXPECT_EQ(none.train.files[0].dropped, 3);
    const nlohmann::ordered_json json = to_json(none);
    EXPECT_TRUE(json.at("batches").is_null());
    EXPECT_EQ(json.at("error"), none.error);
    EXPECT_EQ(json.at("dataset").at("rows").at("dropped"), 3);
  }
  EXPECT_EQ(look().error, "");
  EXPECT_TRUE(to_json(look()).at("error").is_null());
}

TEST_F(DataLookTest, AFileWithoutAUsableRowIsAnErrorBelowTheTable) {
  const fs::path pairs = folder_.put("b.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})");
  options_.dataset.push_back(pairs.string());
  const DataLook look = this->look();
  EXPECT_EQ(look.error.find(pairs.string() + ": no usable row (--dataset): 1 row read"), 0u) << look.error;
  EXPECT_NE(look.error.find("`apus dpo` takes such rows"), std::string::npos) << look.error;
  ASSERT_EQ(look.train.files.size(), 2u);
  EXPECT_EQ(look.train.files[0].whole, 3);
  EXPECT_EQ(look.train.files[1].dropped, 1);
  EXPECT_GT(look.batches.steps, 0);
}

TEST_F(DataLookTest, AModelThatIsNotThereIsNamedByItsFlag) {
  const auto refusal = [&](const std::string& model) {
    options_.model = model;
    try {
      look();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal("nosuch").find("--model nosuch: there is no such folder"), 0u);
  EXPECT_EQ(refusal(rows_.string()).find("--model " + rows_.string() + " is a file"), 0u);
}

TEST_F(DataLookTest, HeldOutRowsAreCountedByThemselves) {
  options_.split_dataset_ratio = 0.34;
  const DataLook split = look();
  EXPECT_EQ(split.split_rows, split.train.report.held_out());
  EXPECT_EQ(split.train.report.whole() + split.split_rows, 3);
  EXPECT_GT(split.split_rows, 0);
  EXPECT_EQ(split.train.files[0].held_out, split.split_rows);
  EXPECT_EQ(static_cast<int64_t>(split.row_lengths.size()), split.train.report.whole());
  EXPECT_EQ(split.train.lengths.sequences, split.train.report.whole());
  EXPECT_EQ(split.train.lengths.tokens, split.batches.tokens);
}

TEST_F(DataLookTest, SettingsOfDpoAloneChangeNothingElse) {
  options_.per_device_train_batch_size = 2;
  std::string rows;
  for (int i = 1; i < 24; ++i) {
    std::string words;
    for (int k = 0; k < i * 7 % 23; ++k) words += "word ";
    rows += "{\"text\": \"a " + words + "\"}\n";
  }
  options_.dataset = {folder_.put("b.jsonl", rows).string()};
  const DataLook pairs = look();
  options_.dpo_reduction = "microbatch";
  EXPECT_EQ(look().batches.padded_tokens, pairs.batches.padded_tokens);
}

TEST_F(DataLookTest, LengthsBeyondTheModelsAreWarnedOf) {
  folder_.put("model/config.json", R"({"max_position_embeddings": 32})");
  look();
  EXPECT_FALSE(log_.contains("max_position_embeddings"));
  options_.max_length = 33;
  look();
  EXPECT_TRUE(log_.contains("--max_length 33 is above the model's max_position_embeddings 32"));
}

TEST_F(DataLookTest, WrongSettingsComeBeforeTheRows) {
  options_.val_dataset = {(folder_ / "absent.jsonl").string()};
  EXPECT_THROW(look(), ConfigError);
  EXPECT_FALSE(log_.contains("rows: ")) << "nothing was prepared";
}

TEST_F(DataLookTest, ASentenceAboutEosNeedsOne) {
  EXPECT_NE(look().train.note.find("with eos at their end"), std::string::npos);
  nlohmann::json config = load_json_file(folder_ / "model/tokenizer_config.json");
  config.erase("eos_token");
  folder_.put("model/tokenizer_config.json", config.dump());
  EXPECT_EQ(look().train.note, "texts are trained whole");
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
