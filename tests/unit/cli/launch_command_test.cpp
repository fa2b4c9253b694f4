#include "tests/unit/cli/support/program_call.h"

namespace apus::cli {
namespace {

TEST(LaunchCommand, NeedsACommandAndSaysWhatItCannotDo) {
  EXPECT_NE(call({"launch", "--nproc_per_node=2"}).error.find("apus launch needs `--`"), std::string::npos);
  EXPECT_NE(call({"launch", "--", "infer"}).error.find("apus launch of `infer` is not supported yet"),
            std::string::npos);
  EXPECT_NE(call({"launch", "--max_restarts=3", "--", "dpo"}).error.find("needs --restartable true"),
            std::string::npos);
  EXPECT_NE(call({"launch", "--nproc_per_nod=3", "--", "dpo"}).error.find("did you mean '--nproc_per_node'?"),
            std::string::npos);
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

}  // namespace
}  // namespace apus::cli
