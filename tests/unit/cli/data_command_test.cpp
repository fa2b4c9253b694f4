#include "cli/data_command.h"

#include <gtest/gtest.h>

#include "apus/base/file.h"
#include "apus/base/json.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/cli/support/program_call.h"

namespace apus::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// A folder with a tokenizer alone: neither config.json nor weights.
class DataCommand : public testing::Test {
 protected:
  DataCommand() { fs::copy(cases() / "tokenizer", model(), fs::copy_options::recursive); }

  static fs::path cases() { return fs::path(APUS_SOURCE_DIR) / "tests/data/cases/dpo"; }
  fs::path model() const { return folder_ / "model"; }

  Words look(const std::string& dataset, const Words& more = {}) const {
    Words words = {"data", "--model", model().string(), "--dataset", dataset};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  nlohmann::json report(const std::string& dataset, Words more = {},
                        const Environment& environment = {}) const {
    const fs::path path = folder_ / "report.json";
    more.insert(more.end(), {"--result_path", path.string()});
    const Outcome outcome = call(look(dataset, more), environment);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return load_json_file(path);
  }

  ScratchFolder folder_;
};

TEST_F(DataCommand, LooksAtPairsWithATokenizerAlone) {
  const Outcome outcome = call(look((cases() / "chat/train.jsonl").string(), {"--max_length", "92"}));
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.out.find("Task: dpo; max_length: 92\n"), 0u) << outcome.out;
  EXPECT_NE(outcome.out.find("First rows"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("train.jsonl:1, chosen\ninput: "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\nlabels: [-100 * "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("longer than max_length"), std::string::npos) << outcome.out;
}

TEST_F(DataCommand, TheReportIsOneObjectThatAddsUp) {
  const auto json = report((cases() / "chat/train.jsonl").string(), {"--max_length", "92"});
  const auto& rows = json.at("dataset").at("rows");
  EXPECT_EQ(rows.at("read"),
            rows.at("whole").get<int>() + rows.at("truncated").get<int>() + rows.at("dropped").get<int>());
  EXPECT_GT(rows.at("dropped"), 0);
  EXPECT_EQ(rows.at("by_file").at(0).at("read"), rows.at("read"));
  EXPECT_EQ(rows.at("by_file").at(0).at("dropped"), rows.at("dropped"));
  int dropped = 0;
  for (const auto& reason : rows.at("by_reason")) dropped += reason.at("rows").get<int>();
  EXPECT_EQ(rows.at("dropped"), dropped);
  EXPECT_EQ(json.at("batches").at("rows_per_epoch"),
            rows.at("whole").get<int>() + rows.at("truncated").get<int>());
  EXPECT_EQ(json.at("batches").at("tokens_per_epoch"), json.at("dataset").at("lengths").at("tokens"));
  EXPECT_TRUE(json.at("packing").is_null());
}

TEST_F(DataCommand, TheWorldOfTheEnvironmentDecidesAboutSteps) {
  const std::string data = (cases() / "standard/train.jsonl").string();
  const Words flags = {"--use_chat_template", "false", "--gradient_accumulation_steps", "2",
                       "--num_train_epochs",  "2"};
  const auto one = report(data, flags);
  const auto four = report(data, flags, Environment(Environment::Map{{"NPROC_PER_NODE", "4"}}));
  EXPECT_EQ(four.at("batches").at("world_size"), 4);
  const int rows = one.at("batches").at("rows_per_epoch");
  EXPECT_EQ(one.at("batches").at("steps_per_epoch"), (rows + 1) / 2);
  EXPECT_EQ(four.at("batches").at("steps_per_epoch"), (rows + 7) / 8);
  EXPECT_EQ(four.at("batches").at("total_steps"), 2 * ((rows + 7) / 8));
}

TEST_F(DataCommand, EveryShapeOfRowIsFoundByItsColumns) {
  const auto task_of = [&](const std::string& row, const Words& more = {}) {
    return report(folder_.put("rows.jsonl", row + "\n").string(), more).at("task");
  };
  EXPECT_EQ(
      task_of(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
      "sft");
  EXPECT_EQ(task_of(R"({"text": "once upon a time"})"), "pt");
  EXPECT_EQ(task_of(R"({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]})"), "tokens");
  EXPECT_EQ(task_of(R"({"q": "a", "good": "b", "bad": "c"})",
                    {"--columns", R"({"q": "prompt", "good": "chosen", "bad": "rejected"})"}),
            "dpo");
}

TEST_F(DataCommand, PackingAndSplitsAreReported) {
  const std::string data = (cases() / "standard/train.jsonl").string();
  const auto json = report(data, {"--use_chat_template", "false", "--packing", "true", "--max_length", "64",
                                  "--packing_length", "256", "--split_dataset_ratio", "0.25"});
  const auto& packing = json.at("packing");
  EXPECT_EQ(packing.at("packing_length"), 256);
  EXPECT_GT(packing.at("efficiency"), 0.5);
  EXPECT_GT(json.at("split_rows"), 0);
  const auto& rows = json.at("dataset").at("rows");
  EXPECT_EQ(packing.at("rows"), rows.at("whole").get<int>() + rows.at("truncated").get<int>());
  EXPECT_EQ(json.at("split_rows"), rows.at("held_out"));
  EXPECT_EQ(json.at("batches").at("rows_per_epoch"), packing.at("packs"));
  EXPECT_EQ(json.at("batches").at("padding_share"), 0.0);
}

TEST_F(DataCommand, HeldOutFilesAreLookedAtToo) {
  const std::string data = (cases() / "standard/train.jsonl").string();
  const Outcome outcome = call(look(data, {"--use_chat_template", "false", "--val_dataset", data + "#3"}));
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("\n--val_dataset\n"), std::string::npos) << outcome.out;
}

TEST_F(DataCommand, ColumnsOfNoShapeAreRefused) {
  const Outcome outcome = call(look(folder_.put("rows.jsonl", "{\"a\": 1}\n").string()));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.error.find("rows.jsonl:1: the row has a, which is none of the known shapes"),
            std::string::npos)
      << outcome.error;
}

TEST_F(DataCommand, ATaskThatIsGivenGoesBeforeTheColumns) {
  const Outcome outcome =
      call(look(folder_.put("rows.jsonl", "{\"text\": \"a\"}\n").string(), {"--rlhf_type", "dpo"}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.error.find("no usable row"), std::string::npos) << outcome.error;
}

TEST_F(DataCommand, WithoutAUsableRowTheCountsAreReportedAllTheSame) {
  const fs::path path = folder_.put("report.json", "an old report");
  const std::string data = folder_.put("rows.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n").string();
  const Outcome outcome = call(look(data, {"--rlhf_type", "dpo", "--result_path", path.string()}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("2 rows dropped"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.error.find("no usable row"), std::string::npos) << outcome.error;
  const nlohmann::json json = load_json_file(path);
  EXPECT_EQ(json.at("dataset").at("rows").at("dropped"), 2);
  EXPECT_EQ(json.at("dataset").at("rows").at("by_reason").at(0).at("rows"), 2);
}

TEST_F(DataCommand, AnOldReportDoesNotStayBehindAnError) {
  const fs::path path = folder_.put("report.json", "an old report");
  const std::string data = folder_.put("rows.jsonl", "{\"a\": 1}\n").string();
  const Outcome outcome = call(look(data, {"--result_path", path.string()}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(load_json_file(path).at("error").get<std::string>().find("none of the known shapes"),
            std::string::npos);
}

TEST_F(DataCommand, WhatIsReadIsNotReplaced) {
  const fs::path rows = folder_.put("rows.jsonl", "{\"text\": \"a\"}\n");
  for (const fs::path& path : {rows, model() / "tokenizer.json"}) {
    const std::string before = read_file(path);
    const Outcome outcome = call(look(rows.string() + "#1", {"--result_path", path.string()}));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.error.find("would replace a file"), std::string::npos) << outcome.error;
    EXPECT_EQ(read_file(path), before);
  }
  EXPECT_EQ(call(look(rows.string(), {"--result_path="})).code, 2);
}

TEST_F(DataCommand, SaysWhatHasNoEffectAsTheRunDoes) {
  const std::string row = R"({"prompt": "a", "chosen": "b", "rejected": "c", "margin": 1.5})";
  const Outcome outcome = call(look(folder_.put("rows.jsonl", row).string(),
                                    {"--use_fast_tokenizer", "true", "--loss_type", "nca_pair"}));
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE(outcome.error.find("Without effect here, meant for Python programs: --use_fast_tokenizer"),
            std::string::npos)
      << outcome.error;
  EXPECT_NE(outcome.error.find("Without effect: margin of the rows"), std::string::npos) << outcome.error;
}

TEST_F(DataCommand, ErrorsCannotDriveTheTerminal) {
  const Outcome outcome = call(look((folder_ / "a\x1b[2J\xff.jsonl").string()));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("a\\x1b[2J\xEF\xBF\xBD.jsonl"), std::string::npos) << outcome.error;
  EXPECT_EQ(outcome.error.find('\x1b'), std::string::npos);
}

TEST_F(DataCommand, OtherRanksOfALauncherAreSilent) {
  const Environment second(Environment::Map{{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  const Outcome outcome = call(look((cases() / "standard/train.jsonl").string()), second);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out + outcome.error, "");
}

TEST_F(DataCommand, ItsHelpListsTheTrainingFlags) {
  const std::string help = call({"data", "--help"}).out;
  for (const char* part :
       {"Usage: apus data", "--result_path", "--packing_length", "--columns", "--max_length"}) {
    EXPECT_NE(help.find(part), help.npos) << part;
  }
  EXPECT_EQ(help.find("--result_path                     none                file of answers"), help.npos);
}

}  // namespace
}  // namespace apus::cli
