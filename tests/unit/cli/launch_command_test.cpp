#include "cli/launch_command.h"

#include "tests/unit/cli/support/program_call.h"

namespace apus::cli {
namespace {

TEST(LaunchCommand, NeedsACommandAndSaysWhatItCannotDo) {
  EXPECT_NE(call({"launch", "--nproc_per_node=2"}).error.find("apus launch needs `--`"), std::string::npos);
  EXPECT_NE(call({"launch", "--", "infer"}).error.find("apus launch of `infer` is not supported yet"),
            std::string::npos);
  EXPECT_NE(
      call({"launch", "--", "env"}).error.find("apus env is one process: call it without `apus launch`"),
      std::string::npos);
  EXPECT_NE(call({"launch", "--max_restarts=3", "--", "dpo"}).error.find("needs --restartable true"),
            std::string::npos);
  EXPECT_NE(call({"launch", "--nproc_per_nod=3", "--", "dpo"}).error.find("did you mean '--nproc_per_node'?"),
            std::string::npos);
}

TEST(LaunchCommand, KnowsWhatStandsBehindTheDashes) {
  for (const char* word : {"apus", "/opt/bin/apus"}) {
    const Outcome outcome = call({"launch", "--nproc_per_node=2", "--", word, "sft"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.error.find(std::string("leave out \"") + word + "\""), std::string::npos)
        << outcome.error;
  }
  const Outcome other = call({"launch", "--", "ls"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.error.find("apus launch starts no `ls`"), std::string::npos) << other.error;
  EXPECT_EQ(other.error.find("not supported yet"), std::string::npos) << "it never will be";
}

TEST(LaunchCommand, NamesTheDashesWhereTheyAreMissing) {
  for (const char* task : {"sft", "train"}) {
    const Outcome outcome = call({"launch", "--nproc_per_node=2", task, "--model", "m"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.error.find("apus launch needs `--`"), std::string::npos) << outcome.error;
  }
}

TEST(LaunchCommand, ChecksTheCommandBeforeStartingIt) {
  const Outcome outcome = call({"launch", "--nproc_per_node=2", "--", "dpo", "--lora_rnak", "8"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.error, "error: unknown flag --lora_rnak (did you mean '--lora_rank'?)\n");
}

TEST(LaunchCommand, CountsAreChecked) {
  const std::vector<std::string> job = {"--",        "dpo", "--model",       "m",
                                        "--dataset", "d",   "--ddp_backend", "gloo"};
  const auto refusal = [&job](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "launch");
    flags.insert(flags.end(), job.begin(), job.end());
    return call(flags).error;
  };
  EXPECT_NE(refusal({"--nproc_per_node", "0"}).find(" 0: expected 1 to 1024"), std::string::npos);
  EXPECT_NE(refusal({"--nproc_per_node", "-1"}).find(" -1: expected 1 to 1024"), std::string::npos);
  EXPECT_NE(refusal({"--nnodes", "0"}).find("--nnodes 0: expected 1 to"), std::string::npos);
  EXPECT_NE(refusal({"--nproc_per_node", "1000000"}).find("expected 1 to 1024"), std::string::npos);
  EXPECT_NE(refusal({"--nproc_per_node=9223372036854775807"}).find("--nproc_per_node 9223372036854775807"),
            std::string::npos);
  EXPECT_NE(refusal({"--nproc_per_node=65536", "--nnodes=65536", "--master_addr=a"}).find("65536: expected"),
            std::string::npos);
  EXPECT_NE(refusal({"--nnodes", "2"}).find("needs --master_addr"), std::string::npos);
  EXPECT_NE(refusal({"--nnodes=2", "--master_addr=a", "--restartable"}).find("not supported yet"),
            std::string::npos);
}

TEST(LaunchOptions, EveryFlagDoesWhatItSays) {
  const auto read = [](const std::vector<std::string>& flags, Environment::Map variables = {}) {
    return launch_options(parse_flags(flags, launch_flags()), Environment(std::move(variables)));
  };
  const launch::LaunchOptions none = read({});
  EXPECT_EQ(none.nproc_per_node, 1);
  EXPECT_EQ(none.nnodes, 1);
  EXPECT_EQ(none.node_rank, 0);
  EXPECT_EQ(none.master_addr, "");
  EXPECT_EQ(none.master_port, 0);
  EXPECT_EQ(none.max_restarts, 0);
  EXPECT_EQ(read({"--nproc_per_node", "4"}).nproc_per_node, 4);
  EXPECT_EQ(read({}, {{"NPROC_PER_NODE", "3"}}).nproc_per_node, 3);
  EXPECT_EQ(read({"--nproc-per-node=4"}, {{"NPROC_PER_NODE", "3"}}).nproc_per_node, 4);
  EXPECT_EQ(read({"--nnodes", "2"}).nnodes, 2);
  EXPECT_EQ(read({"--node_rank", "1"}).node_rank, 1);
  EXPECT_EQ(read({"--master_addr", "gpu01"}).master_addr, "gpu01");
  EXPECT_EQ(read({"--master_port", "29501"}).master_port, 29501);
  EXPECT_EQ(read({"--max_restarts=5", "--restartable=True"}).max_restarts, 5);
  EXPECT_EQ(read({"--restartable"}).max_restarts, 3);
  EXPECT_EQ(read({"--restartable", "false"}).max_restarts, 0);
}

TEST(LaunchOptions, EveryFlagOfTheTableIsTestedAbove) {
  EXPECT_EQ(launch_flags().flags().size(), 7u);
}

}  // namespace
}  // namespace apus::cli
