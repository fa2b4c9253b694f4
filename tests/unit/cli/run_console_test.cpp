#include "cli/run_console.h"

#include <gtest/gtest.h>

#include "tests/unit/cli/support/pty_output.h"

namespace apus::cli {
namespace {

Environment terminal(Environment::Map more = {}) {
  more.emplace("TERM", "xterm");
  more.emplace("LANG", "en_US.UTF-8");
  return Environment(std::move(more));
}

/// What a run of two steps puts on a terminal of 60 columns.
std::string shown(const Environment& environment, int rank = 0) {
  PtyOutput output(60);
  ManualClock clock;
  {
    RunConsole console(rank, environment, clock);
    console.log(LogLevel::kInfo, "Output: here");
    console.progress({.step = 0, .max_steps = 2});
    clock.advance(std::chrono::seconds(3));
    console.progress({.step = 1, .max_steps = 2, .loss = 0.5});
    console.log(LogLevel::kInfo, "Saved");
    console.end_progress();
    console.log(LogLevel::kInfo, "Finished");
  }
  return output.taken();
}

TEST(RunConsole, ATerminalGetsABarBelowTheLines) {
  const std::string text = shown(terminal());
  const std::string bar = " 50% |\x1b[32m██████████▌\x1b[0m          |  1/2  loss 0.5000  00:03<00:03";
  EXPECT_EQ(text.find("Output: here\r\n  0% |"), 0u) << text;
  EXPECT_NE(text.find("\r\x1b[K" + bar + "\r\x1b[KSaved\r\n" + bar + "\r\x1b[KFinished\r\n"), text.npos)
      << text;
  EXPECT_TRUE(text.ends_with("Finished\r\n")) << text;
}

TEST(RunConsole, NoColorAndOtherLocalesGetAPlainBar) {
  const std::string text = shown(terminal({{"NO_COLOR", "1"}, {"LC_ALL", "C"}}));
  EXPECT_NE(text.find(" 50% |##########           |  1/2"), text.npos) << text;
  EXPECT_EQ(text.find("\x1b[32m"), text.npos) << text;
}

TEST(RunConsole, ATerminalThatCannotDrawGetsLines) {
  EXPECT_EQ(shown(Environment(Environment::Map{{"TERM", "dumb"}})), "Output: here\r\nSaved\r\nFinished\r\n");
}

TEST(RunConsole, OtherRanksClearTheBarBeforeTheySpeak) {
  EXPECT_EQ(shown(terminal(), 1), "\r\x1b[KOutput: here\r\n\r\x1b[KSaved\r\n\r\x1b[KFinished\r\n");
}

TEST(RunConsole, APipeGetsPlainLines) {
  testing::internal::CaptureStdout();
  ManualClock clock;
  RunConsole console(0, terminal(), clock);
  console.progress({.step = 1, .max_steps = 2});
  console.log(LogLevel::kInfo, "Step 1/2, loss=0.5");
  console.end_progress();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "Step 1/2, loss=0.5\n");
}

TEST(RunConsole, FollowsTheTerminalsSize) {
  PtyOutput output(60);
  ManualClock clock;
  RunConsole console(0, terminal(), clock);
  console.progress({.step = 0, .max_steps = 4});
  output.taken();
  output.resize(12);
  clock.advance(std::chrono::seconds(1));
  console.progress({.step = 1, .max_steps = 4});
  EXPECT_EQ(output.taken(), "\r\x1b[4A\x1b[J 25%  1/4");
}

}  // namespace
}  // namespace apus::cli
