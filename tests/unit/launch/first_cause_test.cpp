#include "launch/first_cause.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace apus::launch {
namespace {

RankError error_of(int rank, ErrorKind kind, const char* message) {
  return {.rank = rank, .time_ns = rank, .kind = kind, .message = message};
}

RankExit ended(int rank, int code) {
  return {.rank = rank, .exit = {.code = code}};
}

TEST(FirstCause, AnOwnErrorWinsOverEarlierConsequences) {
  const FirstCause cause = find_first_cause(
      {ended(0, 1), ended(2, 1)},
      {error_of(0, ErrorKind::kConsequence, "lost"), error_of(2, ErrorKind::kOwn, "no memory")});
  EXPECT_EQ(cause.message, "rank 2: no memory");
  EXPECT_EQ(cause.exit_code, 1);
  EXPECT_TRUE(cause.can_be_retried);
}

TEST(FirstCause, AConfigurationErrorIsNotTriedAgain) {
  const FirstCause cause =
      find_first_cause({ended(0, 2)}, {error_of(0, ErrorKind::kConfiguration, "--beta must be positive")});
  EXPECT_FALSE(cause.can_be_retried);
  EXPECT_EQ(cause.exit_code, 2);
}

TEST(FirstCause, AKilledRankWinsOverItsPeersConsequences) {
  const RankExit killed{.rank = 2, .exit = {.signal = SIGKILL}};
  const FirstCause cause =
      find_first_cause({ended(0, 1), killed}, {error_of(0, ErrorKind::kConsequence, "connection closed")});
  EXPECT_EQ(cause.exit_code, 137);
  EXPECT_EQ(cause.message.find("rank 2 was killed by signal 9 (SIGKILL)"), 0u) << cause.message;
  EXPECT_NE(cause.message.find("memory ran out"), std::string::npos) << cause.message;
}

TEST(FirstCause, RanksThatTheLauncherStoppedAreNoCause) {
  const RankExit stopped{.rank = 0, .exit = {.signal = SIGTERM}, .was_stopped = true};
  const FirstCause cause = find_first_cause({stopped, ended(1, 3)}, {});
  EXPECT_EQ(cause.message, "rank 1 ended with exit code 3");
  EXPECT_EQ(cause.exit_code, 3);
}

TEST(FirstCause, WithoutAnythingBetterTheEarliestConsequenceIsNamed) {
  const FirstCause cause =
      find_first_cause({ended(1, 1)}, {error_of(1, ErrorKind::kConsequence, "deadline")});
  EXPECT_EQ(cause.message, "rank 1: deadline");
}

TEST(FirstCause, AUsageErrorWithoutANoteIsNotTriedAgain) {
  EXPECT_FALSE(find_first_cause({ended(0, 2)}, {}).can_be_retried);
  EXPECT_TRUE(find_first_cause({ended(0, 1)}, {}).can_be_retried);
}

TEST(FirstCause, AStoppedRankAloneIsStillReported) {
  const RankExit stopped{.rank = 4, .exit = {.code = 143}, .was_stopped = true};
  EXPECT_EQ(find_first_cause({stopped}, {}).exit_code, 143);
}

}  // namespace
}  // namespace apus::launch
