#include "apus/data/data_task.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "tests/support/scratch_folder.h"

namespace apus::data {
namespace {

std::string task_of(const char* row) {
  const auto task = task_of_row(nlohmann::ordered_json::parse(row));
  return task ? std::string(data_task_name(*task)) : "none";
}

std::string refusal(const std::string& file, const ColumnMap& columns = {}) {
  try {
    find_data_task({file}, columns);
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DataTask, FollowsTheKeysOfTheRow) {
  EXPECT_EQ(task_of(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"), "dpo");
  EXPECT_EQ(task_of(R"({"messages": [], "rejected_response": "c"})"), "dpo");
  EXPECT_EQ(task_of(R"({"messages": [], "rejected_messages": []})"), "dpo");
  EXPECT_EQ(task_of(R"({"messages": [], "rejected_response": null})"), "sft");
  EXPECT_EQ(task_of(R"({"conversations": []})"), "sft");
  EXPECT_EQ(task_of(R"({"conversation": []})"), "sft");
  EXPECT_EQ(task_of(R"({"instruction": "a", "output": "b"})"), "sft");
  EXPECT_EQ(task_of(R"({"query": "a", "response": "b"})"), "sft");
  EXPECT_EQ(task_of(R"({"text": "a"})"), "pt");
  EXPECT_EQ(task_of(R"({"input_ids": [1], "labels": [1]})"), "tokens");
  EXPECT_EQ(task_of(R"({"prompt": "a", "chosen": "b"})"), "none");
  EXPECT_EQ(task_of(R"({"instruction": "a"})"), "none");
  EXPECT_EQ(task_of("{}"), "none");
}

TEST(DataTask, ReadsTheFirstRowOfLinesAndArrays) {
  const ScratchFolder folder;
  const auto task = [&](std::string_view text) {
    return find_data_task({folder.put("a.jsonl", text).string()});
  };
  EXPECT_EQ(task("\n{\"text\": \"a\"}\n{\"messages\": []}\n"), DataTask::kPretrain);
  EXPECT_EQ(task("[{\"messages\": []}, {\"text\": \"a\"}]"), DataTask::kChat);
  const std::string limited = folder.put("b.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}").string() + "#1";
  EXPECT_EQ(find_data_task({limited}), DataTask::kPretrain);
}

TEST(DataTask, ColumnsAreRenamedFirst) {
  const ScratchFolder folder;
  const std::string file = folder.put("a.jsonl", R"({"question": "a", "answer": "b"})").string();
  EXPECT_EQ(find_data_task({file}, ColumnMap::parse(R"({"question": "query", "answer": "response"})")),
            DataTask::kChat);
  const ColumnMap clash = ColumnMap::parse(R"({"question": "answer"})");
  EXPECT_NE(refusal(file, clash).find("a.jsonl:1: "), std::string::npos) << refusal(file, clash);
}

TEST(DataTask, TheFirstRowThatTellsDecides) {
  const ScratchFolder folder;
  const std::string empty = folder.put("empty.jsonl", "\n").string();
  const std::string broken = folder.put("broken.jsonl", "{\"text\n[1]\n{\"a\": 1}\n").string();
  const std::string pairs =
      folder.put("pairs.jsonl", "{\"a\"\n{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n")
          .string();
  const std::string texts = folder.put("texts.jsonl", "{\"text\": \"a\"}\n").string();
  EXPECT_EQ(find_data_task({pairs}), DataTask::kDpo);
  EXPECT_EQ(find_data_task({empty, broken, pairs, texts}), DataTask::kDpo);
  EXPECT_EQ(find_data_task({empty, broken, texts, pairs}), DataTask::kPretrain);
  const std::string text = refusal(broken);
  EXPECT_NE(text.find("broken.jsonl:1: "), text.npos) << text;
  EXPECT_NE(text.find("; none of the first 3 rows tells what is trained"), text.npos) << text;
  EXPECT_THROW(find_data_task({empty, (folder / "absent.jsonl").string()}), ConfigError);
}

TEST(DataTask, ALineOverTheLimitIsPassedOver) {
  const ScratchFolder folder;
  const std::string text =
      "{\"text\": \"" + std::string((size_t{64} << 20) + 1, 'a') + "\"}\n{\"messages\": []}\n";
  EXPECT_EQ(find_data_task({folder.put("a.jsonl", text).string()}), DataTask::kChat);
}

TEST(DataTask, ARowThatIsNoneOfTheShapesIsShown) {
  const ScratchFolder folder;
  const std::string text = refusal(folder.put("a.jsonl", "\n{\"a\": 1, \"b\": 2}").string());
  EXPECT_NE(text.find("a.jsonl:2: the row has a, b, which is none"), text.npos) << text;
  EXPECT_NE(text.find("--columns"), text.npos) << text;
}

TEST(DataTask, BrokenDataNamesItsPlace) {
  const ScratchFolder folder;
  EXPECT_NE(refusal(folder.put("a.jsonl", "\n1\n").string()).find("a.jsonl:2: expected an object"),
            std::string::npos);
  EXPECT_NE(refusal(folder.put("b.jsonl", "{").string()).find("b.jsonl:1: "), std::string::npos);
  EXPECT_NE(refusal(folder.put("c.jsonl", "\n").string()).find("no row"), std::string::npos);
}

TEST(DataTask, AFileThatIsNotThereIsAMistakeOfTheFlag) {
  const ScratchFolder folder;
  try {
    find_data_task({(folder / "absent.jsonl").string()});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("absent.jsonl: no such file; check --dataset"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace apus::data
