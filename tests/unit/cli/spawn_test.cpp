#include "cli/spawn.h"

#include <gtest/gtest.h>

namespace apus::cli {
namespace {

// What the ranks below run: this very program, started again.
TEST(SpawnedRank, DISABLED_Fails) {
  FAIL() << "as it should";
}

launch::LaunchOptions ranks(const std::string& filter) {
  return {.arguments = {"--gtest_filter=" + filter, "--gtest_also_run_disabled_tests", "--gtest_brief=1"},
          .environment = Environment::from_process(),
          .nproc_per_node = 2};
}

TEST(Spawn, RunsThisProgramOnceARank) {
  EXPECT_EQ(spawn_ranks(ranks("Nothing.Matches")), 0);
}

TEST(Spawn, PrintsTheFirstCauseLast) {
  testing::internal::CaptureStderr();
  const int code = spawn_ranks(ranks("SpawnedRank.*"));
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 1);
  EXPECT_EQ(error.find("error: rank "), 0u) << error;
  EXPECT_NE(error.find(" ended with exit code 1\n"), std::string::npos) << error;
}

}  // namespace
}  // namespace apus::cli
