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

TEST(Program, ItsVersionTakesNothingElse) {
  const Outcome outcome = call({"--version", "--foo"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.error, "error: unknown flag --foo: `apus --version` takes none\n");
}

TEST(Program, MistakesOfFlagsAreOfOneKind) {
  const std::string rows = APUS_SOURCE_DIR "/tests/data/cases/dpo/standard/train.jsonl";
  const std::string model = APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer";
  for (const auto& [words, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"data", "--model", model, "--dataset", "nosuch.jsonl"}, "no such file; check --dataset"},
           {{"data", "--model", "nosuch", "--dataset", rows}, "--model nosuch: there is no such folder"},
           {{"merge", "--adapters", "nosuch"}, "--adapters nosuch does not exist"},
           {{"dpo", "--config", "nosuch.json"}, "--config: cannot open nosuch.json"},
           {{"dpo", "--config", rows}, "--config: " + rows}}) {
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.code, 2) << outcome.error;
    EXPECT_NE(outcome.error.find(message), std::string::npos) << outcome.error;
  }
}

TEST(Program, HelpsWithItselfAndItsCommands) {
  const Outcome help = call({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* name :
       {"dpo", "sft", "pt", "rlhf", "train", "data", "plan", "merge", "export", "env", "launch", "infer"}) {
    EXPECT_NE(help.out.find(std::string("\n  ") + name), help.out.npos) << name;
  }
  EXPECT_NE(call({"dpo", "--help"}).out.find("Usage: apus dpo"), std::string::npos);
  EXPECT_NE(call({"launch", "--help"}).out.find("--max_restarts"), std::string::npos);
}

TEST(Program, WithoutACommandItIsAUsageError) {
  const Outcome outcome = call({});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.error.find("Usage: apus"), 0u) << outcome.error;
}

TEST(Program, AnUnknownCommandNamesTheNearest) {
  const Outcome outcome = call({"dop"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.error, "error: unknown command `dop` (did you mean 'dpo'?); `apus --help` lists them\n");
}

TEST(Program, CommandsOfLaterSaySo) {
  for (const char* name : {"infer", "megatron"}) {
    const Outcome outcome = call({name});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.error, std::string("error: apus ") + name + " is not supported yet\n");
  }
}

TEST(Program, EveryCommandThatRunsHasAHelpOfItsOwn) {
  const std::string overview = call({"--help"}).out;
  for (const char* name :
       {"dpo", "sft", "pt", "rlhf", "train", "data", "plan", "merge", "export", "launch", "env"}) {
    const Outcome outcome = call({name, "--help"});
    EXPECT_EQ(outcome.code, 0) << name;
    EXPECT_EQ(outcome.out.find(std::string("Usage: apus ") + name), 0u) << outcome.out;
    const size_t line = overview.find(std::string("\n  ") + name + " ");
    ASSERT_NE(line, overview.npos) << name;
    const std::string said = overview.substr(line + 1, overview.find('\n', line + 1) - line - 1);
    EXPECT_EQ(said.find("not supported yet"), said.npos) << said;
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
