#include "cli/progress_bar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

using std::chrono::milliseconds;

/// A bar on a terminal of memory.
class ProgressBarTest : public testing::Test {
 protected:
  ProgressBar make() {
    return ProgressBar({.write = [this](std::string_view text) { written_ += text; },
                        .columns = [this] { return columns_; },
                        .clock = &clock_,
                        .unicode = false});
  }
  /// What has been written since the last call.
  std::string taken() { return std::exchange(written_, ""); }

  ManualClock clock_;
  int columns_ = 40;
  std::string written_;
};

TEST_F(ProgressBarTest, RedrawsTenTimesASecondAtMostButTheLastStepAlways) {
  ProgressBar bar = make();
  bar.update({.step = 0, .max_steps = 1000});
  EXPECT_EQ(taken().find("  0% |"), 0u);
  for (int step = 1; step < 1000; ++step) {
    clock_.advance(milliseconds(1));
    bar.update({.step = step, .max_steps = 1000});
  }
  const std::string drawn = taken();
  EXPECT_EQ(std::ranges::count(drawn, '\r'), 9);
  bar.update({.step = 1000, .max_steps = 1000});
  EXPECT_NE(taken().find("100% |"), std::string::npos);
}

TEST_F(ProgressBarTest, TimeLeftFollowsFromTheStepsOfThisProcess) {
  ProgressBar bar = make();
  bar.update({.step = 500, .max_steps = 1000});  // resumed here
  EXPECT_NE(taken().find("00:00<?"), std::string::npos);
  clock_.advance(std::chrono::seconds(10));
  bar.update({.step = 510, .max_steps = 1000});
  EXPECT_NE(taken().find("00:10<08:10"), std::string::npos) << written_;
}

TEST_F(ProgressBarTest, LinesArePrintedAboveIt) {
  ProgressBar bar = make();
  bar.print_above([&] { written_ += "first\n"; });
  EXPECT_EQ(taken(), "first\n");  // no bar yet
  bar.update({.step = 1, .max_steps = 2});
  const std::string line = taken();
  bar.print_above([&] { written_ += "second\n"; });
  EXPECT_EQ(taken(), "\r\x1b[Ksecond\n" + line);
}

TEST_F(ProgressBarTest, ATerminalThatBecameNarrowIsCleanedOfTheWrappedLine) {
  ProgressBar bar = make();
  bar.update({.step = 1, .max_steps = 2});
  taken();
  columns_ = 10;  // 39 columns became four rows
  clock_.advance(milliseconds(100));
  bar.update({.step = 1, .max_steps = 2});
  EXPECT_EQ(taken(), "\r\x1b[3A\x1b[J 50%  1/2");
}

TEST_F(ProgressBarTest, EndsWithACleanLine) {
  {
    ProgressBar bar = make();
    bar.update({.step = 1, .max_steps = 2});
    bar.clear();
    EXPECT_TRUE(taken().ends_with("\r\x1b[K"));
    bar.print_above([] {});
    bar.clear();
    EXPECT_EQ(taken(), "");
    bar.update({.step = 2, .max_steps = 2});
    taken();
  }
  EXPECT_EQ(taken(), "\r\x1b[K");
}

TEST_F(ProgressBarTest, NeedsWhatItDrawsWith) {
  EXPECT_THROW(ProgressBar({}), Error);
}

}  // namespace
}  // namespace apus::cli
