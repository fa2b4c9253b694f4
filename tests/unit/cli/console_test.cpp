#include "cli/console.h"

#include <gtest/gtest.h>

namespace apus::cli {
namespace {

std::pair<std::string, std::string> printed_by(int rank) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const std::shared_ptr<Logger> console = make_rank_console(rank);
  console->info("step {1}");
  console->warning("slow");
  console->error("broken");
  const std::string out = testing::internal::GetCapturedStdout();
  return {out, testing::internal::GetCapturedStderr()};
}

TEST(Console, RankZeroIsPlain) {
  const auto [out, error] = printed_by(0);
  EXPECT_EQ(out, "step {1}\n");
  EXPECT_EQ(error, "warning: slow\nerror: broken\n");
}

TEST(Console, OtherRanksNameThemselvesWhereItMatters) {
  const auto [out, error] = printed_by(3);
  EXPECT_EQ(out, "step {1}\n");
  EXPECT_EQ(error, "[rank 3] warning: slow\n[rank 3] error: broken\n");
}

}  // namespace
}  // namespace apus::cli
