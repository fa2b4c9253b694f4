#include "apus/cli/program.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/unit/cli/support/program_call.h"

namespace apus::cli {
namespace {

TEST(Program, SaysItsVersion) {
  EXPECT_EQ(call({"--version"}).out, std::string("apus ") + kVersion + "\n");
  const std::string project = read_file(APUS_SOURCE_DIR "/CMakeLists.txt");
  EXPECT_NE(project.find(std::string("VERSION ") + kVersion + " "), project.npos);
}

TEST(Program, HelpsWithItselfAndItsCommands) {
  const Outcome help = call({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* name : {"dpo", "rlhf", "launch", "infer", "plan"}) {
    EXPECT_NE(help.out.find(std::string("\n  ") + name), help.out.npos) << name;
  }
  EXPECT_NE(call({"dpo", "--help"}).out.find("Usage: apus dpo"), std::string::npos);
  EXPECT_NE(call({"launch", "--help"}).out.find("--max_restarts"), std::string::npos);
}

TEST(Program, WithoutACommandItIsAUsageError) {
  const Outcome outcome = call({});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("Usage: apus"), std::string::npos);
}

TEST(Program, AnUnknownCommandNamesTheNearest) {
  const Outcome outcome = call({"dop"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.error, "error: unknown command `dop` (did you mean 'dpo'?); `apus --help` lists them\n");
}

TEST(Program, CommandsOfLaterSaySo) {
  for (const char* name : {"sft", "pt", "infer", "merge", "export", "plan", "env", "megatron"}) {
    const Outcome outcome = call({name});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.error, std::string("error: apus ") + name + " is not supported yet\n");
  }
}

TEST(Program, ExitCodesFollowTheError) {
  EXPECT_EQ(exit_code_of(ConfigError("x")), 2);
  EXPECT_EQ(exit_code_of(NotSupported("x")), 2);
  EXPECT_EQ(exit_code_of(DataError("f", 1, "x")), 1);
  EXPECT_EQ(exit_code_of(std::runtime_error("x")), 1);
}

}  // namespace
}  // namespace apus::cli
