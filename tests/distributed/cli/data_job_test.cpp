#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/support/apus_program.h"

namespace apus::program_tests {
namespace {

namespace fs = std::filesystem;

/// Jobs whose rows come in other shapes and files, or go into packs; and the look before them.
class DataJob : public TinyJob {
 protected:
  /// Flags of a look with the data flags of a job.
  Words look(const Words& job_words) const {
    Words words = job_words;
    words.front() = "data";
    return with(words, {"--result_path", (folder_ / "look.json").string()});
  }

  nlohmann::json report() const { return nlohmann::json::parse(read_text(folder_ / "look.json")); }

  std::vector<nlohmann::json> rows() const {
    std::vector<nlohmann::json> rows;
    std::istringstream lines(read_text(rows_));
    for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  static int packed_by_gzip(const fs::path& path) { return std::system(("gzip " + path.string()).c_str()); }
};

TEST_F(DataJob, ALookSaysWhatTheJobThenDoes) {
  const Words words = job("out", -1);
  const Words epoch = with(words, {"--num_train_epochs", "1", "--max_length", "48"});
  const Outcome looked = run_apus(look(epoch), {{"NPROC_PER_NODE", "2"}});
  ASSERT_EQ(looked.code, 0) << looked.output;
  EXPECT_TRUE(looked.says("Task: dpo; max_length: 48")) << looked.output;
  EXPECT_EQ(looked.output.find('\x1b'), std::string::npos) << "no colours in a file";
  const Outcome trained = run_apus(epoch, {{"NPROC_PER_NODE", "2"}});
  ASSERT_EQ(trained.code, 0) << trained.output;
  const nlohmann::json json = report();
  EXPECT_EQ(losses("out").size(), json.at("batches").at("total_steps").get<size_t>());
  const auto& counts = json.at("dataset").at("rows");
  EXPECT_TRUE(trained.says("rows: " + counts.at("read").dump() + " read = " + counts.at("whole").dump() +
                           " trained whole"))
      << trained.output;
  EXPECT_TRUE(trained.says("Rows of a step: dealt to ranks")) << trained.output;
}

TEST_F(DataJob, ColumnsArraysAndPackedFilesGiveTheSameRun) {
  ASSERT_EQ(run_apus(job("plain", 2)).code, 0);
  nlohmann::json array = nlohmann::json::array();
  for (const auto& row : rows())
    array.push_back(
        {{"question", row.at("prompt")}, {"chosen", row.at("chosen")}, {"rejected", row.at("rejected")}});
  const fs::path file = folder_.put("array.json", array.dump(1));
  ASSERT_EQ(packed_by_gzip(file), 0);
  const Outcome outcome = run_apus(with(instead(job("renamed", 2), "--dataset", file.string() + ".gz"),
                                        {"--columns", R"({"question": "prompt"})"}));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(losses("renamed"), losses("plain"));
}

TEST_F(DataJob, PacksAreTrainedAndSaid) {
  const Words words =
      with(job("out", 3), {"--packing", "true", "--max_length", "64", "--packing_length", "256"});
  const Outcome outcome = run_apus(words, {{"NPROC_PER_NODE", "2"}});
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says(" packs of 256 tokens, ")) << outcome.output;
  ASSERT_EQ(losses("out").size(), 3u);
  EXPECT_NEAR(std::stod(losses("out")[0].substr(losses("out")[0].find(' '))), 0.693147, 1e-6);
  const auto args = nlohmann::json::parse(read_text(folder_ / "out/args.json"));
  EXPECT_EQ(args.at("packing_length"), 256);
  EXPECT_EQ(args.at("padding_free"), true);
}

TEST_F(DataJob, AMarginMovesTheLossesThatHaveOneAndIsSaidToDoNothingInOthers) {
  std::string text;
  for (auto row : rows()) {
    row["margin"] = 1.5;
    text += row.dump() + "\n";
  }
  const std::string file = folder_.put("margins.jsonl", text).string();
  const Outcome sigmoid = run_apus(instead(job("sigmoid", 1), "--dataset", file));
  ASSERT_EQ(sigmoid.code, 0) << sigmoid.output;
  EXPECT_FALSE(sigmoid.says("Without effect: margin")) << sigmoid.output;
  ASSERT_EQ(losses("sigmoid").size(), 1u);
  const double first = std::stod(losses("sigmoid")[0].substr(losses("sigmoid")[0].find(' ')));
  EXPECT_NEAR(first, std::log1p(std::exp(1.5)), 1e-5) << "-log sigmoid(0 - margin)";
  const Outcome other =
      run_apus(with(instead(job("other", 1), "--dataset", file), {"--loss_type", "nca_pair"}));
  ASSERT_EQ(other.code, 0) << other.output;
  EXPECT_TRUE(other.says("Without effect: margin of the rows")) << other.output;
}

TEST_F(DataJob, ABrokenFirstRowStopsNeitherLookNorTraining) {
  const fs::path file = folder_.put("broken.jsonl", "{\"prompt\": \n{\"a\": 1}\n" + read_text(rows_));
  const fs::path empty = folder_.put("empty.jsonl", "");
  Words words = with(instead(job("out", 1), "--dataset", empty.string()), {"--max_length", "48"});
  words.insert(std::ranges::find(words, empty.string()) + 1, file.string());
  EXPECT_EQ(run_apus(look(words)).code, 0);
  words.front() = "train";
  const Outcome outcome = run_apus(words);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST_F(DataJob, ALookAndTheJobCountHeldOutRowsAlike) {
  const Words words = with(job("out", 1), {"--split_dataset_ratio", "0.25", "--max_length", "100000"});
  const Outcome looked = run_apus(look(words));
  ASSERT_EQ(looked.code, 0) << looked.output;
  const Outcome trained = run_apus(words);
  ASSERT_EQ(trained.code, 0) << trained.output;
  const nlohmann::json json = report();
  const auto& rows = json.at("dataset").at("rows");
  EXPECT_TRUE(trained.says(rows.at("whole").dump() + " trained whole + " + rows.at("truncated").dump() +
                           " truncated + " + rows.at("held_out").dump() + " held out + "))
      << trained.output;
  for (const Outcome& outcome : {looked, trained})
    EXPECT_TRUE(outcome.says("--max_length 100000 is above the model's max_position_embeddings"))
        << outcome.output;
}

TEST_F(DataJob, AnErrorOfAllRanksIsSaidOnce) {
  const fs::path file = folder_.put("none.jsonl", "{\"a\": 1}\n");
  const Outcome outcome =
      run_apus(instead(job("out", 1), "--dataset", file.string()), {{"NPROC_PER_NODE", "2"}});
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  const size_t first = outcome.output.find("no usable row");
  ASSERT_NE(first, std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("no usable row", first + 1), std::string::npos) << outcome.output;
}

TEST_F(DataJob, AReportThatCannotBePrintedIsAnError) {
  const auto in_shell = [&](const std::string& redirection, const Words& words) {
    Words all = {"-c", "\"$@\" " + redirection, "sh", apus_program().string()};
    all.insert(all.end(), words.begin(), words.end());
    return Running("/bin/sh", all, job_environment()).wait();
  };
  for (const Words& words : {look(job("out", 1)), Words{"--help"}, Words{"dpo", "--help"}}) {
    const Outcome full = in_shell(">/dev/full", words);
    EXPECT_EQ(full.code, 1) << full.output;
    EXPECT_TRUE(full.says("No space left on device")) << full.output;
    const Outcome closed = in_shell(">&-", words);
    EXPECT_EQ(closed.code, 1) << closed.output;
    EXPECT_TRUE(closed.says("Bad file descriptor")) << closed.output;
  }
}

TEST_F(DataJob, PreparedRowsAreKeptForTheNextRun) {
  const Variables cache = {{"APUS_CACHE_DIR", (folder_ / "cache").string()}, {"NPROC_PER_NODE", "2"}};
  ASSERT_EQ(run_apus(job("first", 1), cache).code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "cache/rows"));
  const auto entries = [&] { return std::distance(fs::directory_iterator(folder_ / "cache/rows"), {}); };
  const auto before = entries();
  EXPECT_GT(before, 0);
  ASSERT_EQ(run_apus(job("second", 1), cache).code, 0);
  EXPECT_EQ(entries(), before);
  EXPECT_EQ(losses("second"), losses("first"));
}

}  // namespace
}  // namespace apus::program_tests
