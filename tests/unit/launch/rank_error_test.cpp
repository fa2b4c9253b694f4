#include "apus/launch/rank_error.h"

#include <gtest/gtest.h>

#include "apus/base/env.h"
#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"

namespace apus::launch {
namespace {

TEST(RankError, KindFollowsTheType) {
  EXPECT_EQ(error_kind(ConfigError("x")), ErrorKind::kConfiguration);
  EXPECT_EQ(error_kind(NotSupported("x")), ErrorKind::kConfiguration);
  EXPECT_EQ(error_kind(DataError("f", 1, "x")), ErrorKind::kConfiguration);
  EXPECT_EQ(error_kind(CheckpointError("f", "t", "x")), ErrorKind::kConfiguration);
  EXPECT_EQ(error_kind(CommError("x")), ErrorKind::kConsequence);
  EXPECT_EQ(error_kind(std::runtime_error("x")), ErrorKind::kOwn);
}

TEST(RankError, IsLeftAndCollectedEarliestFirst) {
  const ScratchFolder folder;
  const Environment environment(Environment::Map{{kErrorFolderVariable, folder.path().string()}});
  leave_error(environment,
              {.rank = 2, .time_ns = 50, .kind = ErrorKind::kConsequence, .message = "peer gone"});
  leave_error(environment,
              {.rank = 1, .time_ns = 40, .kind = ErrorKind::kConfiguration, .message = "line \"17\"\n"});
  leave_error(environment, {.rank = 0, .time_ns = 50, .kind = ErrorKind::kOwn, .message = "third"});
  const std::vector<RankError> errors = collect_errors(folder.path());
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[0].rank, 1);
  EXPECT_EQ(errors[0].time_ns, 40);
  EXPECT_EQ(errors[0].kind, ErrorKind::kConfiguration);
  EXPECT_EQ(errors[0].message, "line \"17\"\n");
  EXPECT_EQ(errors[1].rank, 0);
  EXPECT_EQ(errors[1].kind, ErrorKind::kOwn);
  EXPECT_EQ(errors[2].kind, ErrorKind::kConsequence);
}

TEST(RankError, BrokenFilesArePassedOver) {
  const ScratchFolder folder;
  folder.put("rank-0.json", "{\"rank\": 0, \"time");
  folder.put("rank-1.json", "{\"rank\": \"one\"}");
  folder.put("notes.txt", "{}");
  EXPECT_TRUE(collect_errors(folder.path()).empty());
  EXPECT_TRUE(collect_errors(folder.path() / "absent").empty());
}

TEST(RankError, TorchrunGetsItsOwnForm) {
  const ScratchFolder folder;
  const std::string file = (folder.path() / "error.json").string();
  const Environment environment(Environment::Map{{"TORCHELASTIC_ERROR_FILE", file}});
  leave_error(environment, {.rank = 3, .time_ns = 7'000'000'001, .message = "out of disk"});
  const std::string text = read_file(file);
  EXPECT_NE(text.find("\"message\":{"), text.npos) << text;
  EXPECT_NE(text.find("\"message\":\"out of disk\""), text.npos) << text;
  EXPECT_NE(text.find("\"py_callstack\":\"out of disk\""), text.npos) << text;
  EXPECT_NE(text.find("\"timestamp\":\"7\""), text.npos) << text;
}

TEST(RankError, AFolderThatCannotBeWrittenDoesNotThrow) {
  const ScratchFolder folder;
  const auto blocked = folder.put("file", "") / "below";
  const Environment environment(Environment::Map{{kErrorFolderVariable, blocked.string()}});
  leave_error(environment, {.message = "x"});
  leave_error(Environment(), {.message = "x"});
  EXPECT_TRUE(collect_errors(blocked).empty());
}

TEST(RankError, DescribesAnExceptionWithItsTime) {
  const ManualClock clock(Clock::WallTime(std::chrono::seconds(12)));
  const RankError error = describe_error(5, CommError("lost"), clock);
  EXPECT_EQ(error.rank, 5);
  EXPECT_EQ(error.time_ns, 12'000'000'000);
  EXPECT_EQ(error.kind, ErrorKind::kConsequence);
  EXPECT_EQ(error.message, "lost");
}

TEST(RankError, ErrorsAreCollectedWhereAVariableSaysSo) {
  EXPECT_FALSE(collects_errors(Environment()));
  EXPECT_FALSE(collects_errors(Environment(Environment::Map{{"APUS_ERROR_DIR", ""}})));
  EXPECT_TRUE(collects_errors(Environment(Environment::Map{{"APUS_ERROR_DIR", "/d"}})));
  EXPECT_TRUE(collects_errors(Environment(Environment::Map{{"TORCHELASTIC_ERROR_FILE", "/f"}})));
}

}  // namespace
}  // namespace apus::launch
