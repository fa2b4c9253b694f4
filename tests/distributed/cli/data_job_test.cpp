#include <gtest/gtest.h>

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

TEST_F(DataJob, AMarginIsSaidToHaveNoEffect) {
  const Outcome without = run_apus(job("without", 1));
  EXPECT_FALSE(without.says("margin")) << without.output;
  std::string text;
  for (auto row : rows()) {
    row["margin"] = 1.5;
    text += row.dump() + "\n";
  }
  const fs::path file = folder_.put("margins.jsonl", text);
  const Outcome outcome = run_apus(instead(job("with", 1), "--dataset", file.string()));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("Without effect: margin of the rows")) << outcome.output;
  EXPECT_EQ(losses("with"), losses("without"));
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
