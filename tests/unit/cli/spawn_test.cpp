#include "cli/spawn.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace apus::cli {
namespace {

// What the rank below runs: this very program, started again.
TEST(SpawnedRank, DISABLED_EndsWithSeven) {
  std::exit(7);
}

launch::LaunchOptions one_rank(const std::string& filter) {
  return {.arguments = {"--gtest_filter=" + filter, "--gtest_also_run_disabled_tests", "--gtest_brief=1"},
          .environment = Environment::from_process()};
}

TEST(Spawn, RunsThisProgramAgain) {
  EXPECT_EQ(spawn_ranks(one_rank("Nothing.Matches")), 0);
}

TEST(Spawn, PrintsTheFirstCause) {
  testing::internal::CaptureStderr();
  const int code = spawn_ranks(one_rank("SpawnedRank.*"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: rank 0 ended with exit code 7\n");
  EXPECT_EQ(code, 7);
}

}  // namespace
}  // namespace apus::cli
