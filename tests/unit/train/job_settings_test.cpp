#include "apus/train/job_settings.h"

#include <gtest/gtest.h>

#include <functional>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/data/dataset.h"
#include "tests/support/scratch_folder.h"

namespace apus::train {
namespace {

JobOptions resolved(
    const std::function<void(JobOptions&)>& change = [](auto&) {}, int world = 1) {
  JobOptions options;
  options.model = "/models/tiny";
  options.dataset = {"train.jsonl"};
  change(options);
  return resolve_job(options, world);
}

std::string refusal(const std::function<void(JobOptions&)>& change) {
  try {
    resolved(change);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JobSettings, RowsAreDealtByCostWhereThatGainsSomething) {
  EXPECT_FALSE(balance_model(resolved(), 1, 64).has_value()) << "one row in a micro-batch, one rank";
  EXPECT_TRUE(balance_model(resolved(), 2, 64).has_value()) << "ranks wait for each other";
  const auto two_rows = [](auto& options) { options.per_device_train_batch_size = 2; };
  EXPECT_TRUE(balance_model(resolved(two_rows), 1, 64).has_value()) << "rows of one micro-batch are padded";
  const auto packed = [&](auto& options) {
    two_rows(options);
    options.padding_free = true;
  };
  EXPECT_FALSE(balance_model(resolved(packed), 1, 64).has_value());
  EXPECT_DOUBLE_EQ(balance_model(resolved(), 2, 64)->attention, 1.0 / 768);
  EXPECT_EQ(balance_model(resolved(), 2, 0)->attention, 0.0);
}

TEST(JobSettings, TheOrderOfTheEpochStaysWhereItMatters) {
  const auto in_order = [](auto& options) { options.train_dataloader_shuffle = false; };
  const auto microbatch = [](auto& options) { options.dpo_reduction = "microbatch"; };
  EXPECT_FALSE(balance_model(resolved(in_order), 4, 64).has_value());
  EXPECT_FALSE(balance_model(resolved(microbatch), 4, 64).has_value());
  EXPECT_NE(balance_text(resolved(in_order), 4).find("(--train_dataloader_shuffle false)"),
            std::string::npos);
  EXPECT_NE(balance_text(resolved(microbatch), 4).find("(--dpo_reduction microbatch)"), std::string::npos);
  EXPECT_NE(balance_text(resolved(), 1).find("(one rank, "), std::string::npos);
  EXPECT_NE(balance_text(resolved(), 2).find("dealt to ranks"), std::string::npos);
}

TEST(JobSettings, MarginsAreToldInTheWordsOfTheLoss) {
  const auto told = [](std::vector<std::string> losses, std::optional<float> margin) {
    data::DpoRow row;
    row.margin = margin;
    std::vector<data::DpoRow> rows;
    rows.push_back(std::move(row));
    const JobOptions options = resolved([&](auto& job) {
      job.task = "dpo";
      job.loss_type = losses;
    });
    return margin_text(data::DpoDataset(std::move(rows)), options);
  };
  EXPECT_EQ(told({"nca_pair"}, 0.5F),
            "Without effect: margin of the rows; loss_type nca_pair has no use for it");
  EXPECT_TRUE(told({"sigmoid", "nca_pair"}, 0.5F).ends_with("; without effect on nca_pair"));
  EXPECT_EQ(told({"sigmoid"}, 0.5F), "");
  EXPECT_EQ(told({"nca_pair"}, std::nullopt), "");
}

TEST(JobSettings, APackIsAsLongAsARowUnlessToldOtherwise) {
  const auto packing = [](auto& options) { options.packing = true; };
  EXPECT_EQ(packing_options(resolved(packing), 128).packing_length, 128);
  EXPECT_EQ(packing_options(resolved(packing), 128).max_length, 128);
  EXPECT_EQ(packing_options(resolved(packing), 128).seed, 42u);
  EXPECT_EQ(resolved(packing).padding_free, true) << "rows of a pack lie end to end";
  const auto longer = [&](auto& options) {
    packing(options);
    options.packing_length = 512;
    options.data_seed = 7;
    options.train_dataloader_shuffle = false;
  };
  EXPECT_EQ(packing_options(resolved(longer), 128).packing_length, 512);
  EXPECT_EQ(packing_options(resolved(longer), 128).seed, 7u);
  EXPECT_FALSE(packing_options(resolved(longer), 128).shuffle);
}

TEST(JobSettings, PackingThatCannotBeIsRefused) {
  EXPECT_EQ(refusal([](auto& options) { options.packing_length = 8; }),
            "--packing_length 8 needs --packing true");
  const auto below = [](auto& options) {
    options.packing = true;
    options.packing_length = 8;
    options.max_length = 9;
  };
  EXPECT_EQ(refusal(below).find("--packing_length 8 is below --max_length 9"), 0u) << refusal(below);
  EXPECT_NE(refusal([](auto& options) { options.packing_length = 0; }).find("--packing_length"),
            std::string::npos);
}

TEST(JobSettings, ColumnsReachTheReader) {
  const SystemClock clock;
  const auto renamed = [](auto& options) { options.columns = R"({"q": "prompt"})"; };
  const auto prepare = prepare_options(resolved(renamed), DatasetPart::kTrain, 64, clock);
  EXPECT_EQ(prepare.encode.columns.text(), R"({"q":"prompt"})");
  EXPECT_TRUE(prepare_options(resolved(), DatasetPart::kTrain, 64, clock).encode.columns.empty());
  EXPECT_NE(refusal([](auto& options) { options.columns = "[1]"; }).find("--columns"), std::string::npos);
}

TEST(JobSettings, DataIsCheckedBeforeRowsArePrepared) {
  const ScratchFolder folder;
  JobOptions options;
  options.dataset = {folder.put("a.jsonl", "{}\n").string() + "#1"};
  EXPECT_NO_THROW(check_data(options, std::nullopt));
  options.packing = true;
  EXPECT_THROW(check_data(options, std::nullopt), ConfigError) << "packs of what length?";
  EXPECT_NO_THROW(check_data(options, 64));
  options.packing_length = 32;
  EXPECT_NO_THROW(check_data(options, std::nullopt));
  EXPECT_THROW(check_data(options, 64), ConfigError) << "a row may be longer than a pack";
  options.packing_length = 64;
  EXPECT_NO_THROW(check_data(options, 64));
  options.val_dataset = {(folder / "absent.jsonl").string()};
  try {
    check_data(options, 64);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("check --val_dataset"), std::string::npos) << error.what();
  }
}

TEST(JobSettings, RowsLongerThanTheModelsMaximumAreWarnedOf) {
  EXPECT_EQ(length_warning(64, 64), "");
  EXPECT_EQ(length_warning(std::nullopt, 64), "");
  EXPECT_EQ(length_warning(65, std::nullopt), "");
  EXPECT_NE(length_warning(65, 64).find("--max_length 65 is above the model's max_position_embeddings 64"),
            std::string::npos);
}

}  // namespace
}  // namespace apus::train
