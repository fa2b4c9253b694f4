#include "apus/base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace apus {
namespace {

// What a console logger of these options writes for one line of each level.
std::string console_output(ConsoleLoggerOptions options) {
  const bool to_stderr = options.stream == ConsoleStream::kStderr;
  to_stderr ? testing::internal::CaptureStderr() : testing::internal::CaptureStdout();
  const auto logger = make_console_logger(options);
  logger->debug("d {}");
  logger->info("i");
  logger->warning("w");
  logger->error("e");
  return to_stderr ? testing::internal::GetCapturedStderr() : testing::internal::GetCapturedStdout();
}

TEST(Log, ConsoleWritesPlainInformationAndNamesTheRest) {
  EXPECT_EQ(console_output({}), "i\nwarning: w\nerror: e\n");
}

TEST(Log, ConsoleTakesBracesInAMessageLiterally) {
  EXPECT_EQ(console_output({.level = LogLevel::kDebug}), "debug: d {}\ni\nwarning: w\nerror: e\n");
}

TEST(Log, ConsolePutsThePrefixFirstAndObeysTheStream) {
  EXPECT_EQ(
      console_output({.level = LogLevel::kError, .stream = ConsoleStream::kStdout, .prefix = "[rank 3] "}),
      "[rank 3] error: e\n");
}

TEST(Log, NullLoggerWritesNothing) {
  testing::internal::CaptureStderr();
  NullLogger().error("lost");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Log, CaptureKeepsLinesOfManyThreads) {
  CaptureLogger logger;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) logger.info("other");
  });
  for (int i = 0; i < 1000; ++i) logger.warning("this");
  other.join();
  EXPECT_EQ(logger.lines().size(), 2000u);
  EXPECT_EQ(logger.count("other"), 1000);
  EXPECT_TRUE(logger.contains("thi"));
  EXPECT_FALSE(logger.contains("neither"));
  EXPECT_EQ(logger.count("th"), 2000);
}

TEST(Log, OnceLoggerSaysEachKeyOnce) {
  const auto capture = std::make_shared<CaptureLogger>();
  OnceLogger once(capture);
  EXPECT_TRUE(once.warning("flag a", "a has no effect"));
  EXPECT_FALSE(once.warning("flag a", "a has no effect"));
  EXPECT_TRUE(once.info("flag b", "b has no effect"));
  ASSERT_EQ(capture->lines().size(), 2u);
  EXPECT_EQ(capture->lines()[0], std::pair(LogLevel::kWarning, std::string("a has no effect")));
  EXPECT_EQ(capture->lines()[1].first, LogLevel::kInfo);
}

}  // namespace
}  // namespace apus
