#include "cli/terminal.h"

#include <gtest/gtest.h>

namespace apus::cli {
namespace {

TEST(Terminal, TextsCannotDriveIt) {
  EXPECT_EQ(harmless("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(harmless("\x1b[31mred\x07\r\x7f"), "\\x1b[31mred\\x07\\x0d\\x7f");
  EXPECT_EQ(harmless(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(harmless("\xC2\x9B"
                     "31m"),
            "\\x9b31m")
      << "a control character of the second kind";
  EXPECT_EQ(harmless("\xC2\xA9 \xE4\xB8\xAD"), "\xC2\xA9 \xE4\xB8\xAD");
  EXPECT_EQ(harmless("\xFF"
                     "a\xC2"),
            "\xEF\xBF\xBD"
            "a\xEF\xBF\xBD");
  EXPECT_EQ(harmless(""), "");
}

TEST(Terminal, NoColoursWhereTheyAreNotWanted) {
  EXPECT_FALSE(colours_wanted(Environment(Environment::Map{{"NO_COLOR", "1"}})));
  EXPECT_FALSE(colours_wanted(Environment(Environment::Map{{"TERM", "dumb"}})));
  testing::internal::CaptureStdout();
  const bool in_a_file = colours_wanted(Environment(Environment::Map{{"TERM", "xterm"}}));
  testing::internal::GetCapturedStdout();
  EXPECT_FALSE(in_a_file);
}

}  // namespace
}  // namespace apus::cli
