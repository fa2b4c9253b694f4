#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/cli/training_command.h"
#include "tests/support/scratch_folder.h"

namespace apus::cli {
namespace {

std::string refusal(const std::filesystem::path& dataset) {
  try {
    task_of_data(dataset.string());
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(TaskOfData, FollowsTheColumnsOfTheFirstRow) {
  const ScratchFolder folder;
  const auto task = [&](std::string_view row) { return task_of_data(folder.put("a.jsonl", row).string()); };
  EXPECT_EQ(task(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"), "dpo");
  EXPECT_EQ(task(R"({"messages": [], "rejected_response": "c"})"), "dpo");
  EXPECT_EQ(task(R"({"messages": [], "rejected_messages": []})"), "dpo");
  EXPECT_EQ(task(R"({"messages": []})"), std::nullopt);
  EXPECT_EQ(task(R"({"prompt": "a", "chosen": "b"})"), std::nullopt);
}

TEST(TaskOfData, BrokenDataNamesItsPlace) {
  const ScratchFolder folder;
  EXPECT_NE(refusal(folder.put("a.jsonl", "\n1\n")).find("a.jsonl:2: expected an object"), std::string::npos);
  EXPECT_THROW(task_of_data(folder.put("d.jsonl", "\n[1]\n").string()), NotSupported) << "an array of rows";
  EXPECT_NE(refusal(folder.put("b.jsonl", "{")).find("b.jsonl:1: "), std::string::npos);
  EXPECT_NE(refusal(folder.put("c.jsonl", "\n")).find("no row"), std::string::npos);
  EXPECT_NE(refusal(folder / "absent.jsonl").find("absent.jsonl"), std::string::npos);
}

}  // namespace
}  // namespace apus::cli
