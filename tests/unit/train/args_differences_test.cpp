#include "train/args_differences.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace apus::train {
namespace {

using Json = nlohmann::json;
using Lines = std::vector<std::string>;

Json file(const std::string& name, int64_t rows, const std::string& fingerprint) {
  return {{"flag", "--dataset"}, {"file", name}, {"rows", rows}, {"fingerprint", fingerprint}};
}

Json args(const std::string& fingerprint, const Json& files) {
  return {{"learning_rate", 1e-4}, {"data_fingerprint", fingerprint}, {"data_files", files}};
}

TEST(ArgsDifferences, AreALineForEachComparedKey) {
  const Json before = {{"learning_rate", 1e-4}, {"save_steps", 5}, {"gone", 1}};
  const Json now = {{"learning_rate", 2e-4}, {"save_steps", 6}};
  EXPECT_EQ(args_differences(before, now),
            (Lines{"learning_rate: was 0.0001, is 0.0002", "gone: was 1, is null"}));
  EXPECT_EQ(args_differences(before, before), Lines());
}

TEST(ArgsDifferences, EvaluationMayFollowTheSaves) {
  EXPECT_EQ(args_differences({{"eval_steps", 5}, {"save_steps", 5}}, {{"eval_steps", 6}, {"save_steps", 6}}),
            Lines());
  EXPECT_EQ(
      args_differences({{"eval_steps", 5}, {"save_steps", 5}}, {{"eval_steps", 4}, {"save_steps", 6}}).size(),
      1u);
}

TEST(ArgsDifferences, NameTheDataFileThatHasChanged) {
  const Json before = args("a", {file("x.jsonl", 64, "1"), file("y.jsonl", 8, "2")});
  EXPECT_EQ(args_differences(before, args("b", {file("x.jsonl", 65, "3"), file("y.jsonl", 8, "2")})),
            (Lines{"data: x.jsonl has changed (64 rows then, 65 now)"}));
  EXPECT_EQ(args_differences(before, args("b", {file("x.jsonl", 64, "1"), file("y.jsonl", 8, "9")})),
            (Lines{"data: y.jsonl has changed (8 rows)"}));
  EXPECT_EQ(args_differences(before, args("b", {file("z.jsonl", 64, "1"), file("y.jsonl", 8, "2")})),
            (Lines{"data: z.jsonl was not among them; x.jsonl is no longer among them"}));
}

TEST(ArgsDifferences, TellAFileThatIsGivenTwiceApart) {
  const Json twice = {file("x.jsonl", 4, "1"), file("x.jsonl", 64, "2")};
  EXPECT_EQ(
      args_differences(args("a", twice), args("b", {file("x.jsonl", 4, "1"), file("x.jsonl", 64, "3")})),
      (Lines{"data: x.jsonl has changed (64 rows)"}));
}

TEST(ArgsDifferences, SayWhereTheFilesAreTheSame) {
  const Json files = {file("x.jsonl", 64, "1")};
  const Lines lines = args_differences(args("a", files), args("b", files));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find("data: the files are the same, but make other rows"), 0u) << lines[0];
}

TEST(ArgsDifferences, ReadRunsThatKeptNoFingerprintByFile) {
  const Json old = {{"learning_rate", 1e-4}, {"data_fingerprint", "a"}};
  const Json files = {file("x.jsonl", 64, "1")};
  EXPECT_EQ(args_differences(old, args("b", files)),
            (Lines{"data: its rows were others (which file, is not known)"}));
  EXPECT_EQ(args_differences(old, args("a", files)), Lines()) << "the same data: the run goes on";
}

}  // namespace
}  // namespace apus::train
