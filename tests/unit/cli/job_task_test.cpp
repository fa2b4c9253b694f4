#include "cli/job_task.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/support/scratch_folder.h"

namespace apus::cli {
namespace {

TEST(JobTask, ComesFromTheColumns) {
  const ScratchFolder folder;
  const auto task = [&](const char* row, const char* columns = "") {
    train::JobOptions job;
    job.dataset = {folder.put("rows.jsonl", std::string(row) + "\n").string()};
    job.columns = columns;
    return task_of_data(job);
  };
  EXPECT_EQ(task(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"), "dpo");
  EXPECT_EQ(task(R"({"messages": [], "rejected_response": "c"})"), "dpo");
  EXPECT_EQ(task(R"({"messages": []})"), "sft");
  EXPECT_EQ(task(R"({"conversations": []})"), "sft");
  EXPECT_EQ(task(R"({"input_ids": [1], "labels": [1]})"), "sft");
  EXPECT_EQ(task(R"({"text": "a"})"), "pt");
  EXPECT_EQ(task(R"({"question": "a", "answer": "b"})", R"({"question": "query", "answer": "response"})"),
            "sft");
}

TEST(JobTask, NeedsData) {
  EXPECT_THROW(task_of_data({}), ConfigError);
}

}  // namespace
}  // namespace apus::cli
