#include "cli/progress_line.h"

#include <gtest/gtest.h>

namespace apus::cli {
namespace {

ProgressFigures middle() {
  return {.step = 420,
          .max_steps = 1000,
          .loss = 0.69314,
          .learning_rate = 5e-5,
          .tokens_per_second = 1234.4,
          .elapsed_seconds = 62,
          .remaining_seconds = 3723};
}

/// Columns of a text without escape sequences.
size_t columns(const std::string& text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

TEST(ProgressLine, HoldsEverythingWhereThereIsRoom) {
  EXPECT_EQ(
      progress_line(middle(), {.columns = 100, .unicode = false}),
      " 42% |##########                |  420/1000  loss 0.6931  lr 5.00e-05  1234 tokens/s  01:02<1:02:03");
  const std::string blocks = progress_line(middle(), {.columns = 100});
  EXPECT_EQ(blocks.find(" 42% |██████████▉               |  420/1000"), 0u) << blocks;
  EXPECT_EQ(columns(blocks), 99u);
}

TEST(ProgressLine, LeavesOutTheLeastNeededFirst) {
  const auto at = [](int width) { return progress_line(middle(), {.columns = width, .unicode = false}); };
  EXPECT_EQ(at(70).find(" lr "), std::string::npos) << at(70);
  EXPECT_NE(at(70).find("tokens/s"), std::string::npos) << at(70);
  EXPECT_EQ(at(50).find("tokens/s"), std::string::npos) << at(50);
  EXPECT_NE(at(50).find("01:02<1:02:03"), std::string::npos) << at(50);
  EXPECT_EQ(at(30), " 42%  420/1000  loss 0.6931");
  EXPECT_EQ(at(16), " 42%  420/1000");
  EXPECT_EQ(at(8), " 42%");
}

TEST(ProgressLine, IsNeverWiderThanTheTerminal) {
  for (int width = 0; width < 200; ++width) {
    for (const bool unicode : {false, true}) {
      const std::string line = progress_line(middle(), {.columns = width, .unicode = unicode});
      EXPECT_LE(columns(line), static_cast<size_t>(std::max(width - 1, 1))) << width << ": " << line;
    }
  }
}

TEST(ProgressLine, FillsExactlyAtTheEndAndNotBefore) {
  ProgressFigures last = middle();
  last.step = 1000;
  EXPECT_EQ(progress_line(last, {.columns = 100, .unicode = false}).find("100% |####"), 0u);
  last.step = 999;
  EXPECT_EQ(progress_line(last, {.columns = 100, .unicode = false}).find(" 99% |"), 0u);
}

TEST(ProgressLine, StandsWithoutFiguresAndSteps) {
  EXPECT_EQ(progress_line({.step = 0, .max_steps = 0}, {.columns = 24, .unicode = false}),
            "  0%  0/0  00:00<?");
}

TEST(ProgressLine, ColoursTheFilledPartAlone) {
  const std::string line = progress_line(middle(), {.columns = 100, .unicode = false, .colours = true});
  EXPECT_NE(line.find("|\x1b[32m##########\x1b[0m  "), line.npos) << line;
  EXPECT_EQ(progress_line(middle(), {.columns = 100}).find('\x1b'), line.npos);
}

TEST(ClockText, HasHoursWhereThereAreSome) {
  EXPECT_EQ(clock_text(0), "00:00");
  EXPECT_EQ(clock_text(59.9), "00:59");
  EXPECT_EQ(clock_text(3600), "1:00:00");
  EXPECT_EQ(clock_text(-1), "00:00");
}

}  // namespace
}  // namespace apus::cli
