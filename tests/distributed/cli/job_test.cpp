#include <gtest/gtest.h>

#include "apus/comm/store.h"
#include "tests/support/apus_program.h"

namespace apus::program_tests {
namespace {

using JobTest = TinyJob;

TEST_F(JobTest, TwoRanksWriteAnAdapterAndTheSameCommandAgainIsComplete) {
  const Outcome first = run_apus(job("out", 4), {{"NPROC_PER_NODE", "2"}});
  ASSERT_EQ(first.code, 0) << first.output;
  EXPECT_TRUE(first.says("world_size=2, rank=0, local_rank=0")) << first.output;
  EXPECT_TRUE(first.says("world_size=2, rank=1, local_rank=1")) << first.output;
  EXPECT_TRUE(first.says("Training on the CPU: ")) << first.output;
  EXPECT_TRUE(first.says("Step 4/4, loss=")) << first.output;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/checkpoint-4/adapter_config.json"));
  EXPECT_FALSE(adapter("out", 4).empty());
  EXPECT_EQ(losses("out").size(), 4u);
  EXPECT_NEAR(std::stod(losses("out")[0].substr(losses("out")[0].find(' '))), 0.693147, 1e-6);

  const Outcome again = run_apus(job("out", 4), {{"NPROC_PER_NODE", "2"}});
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_TRUE(again.says("is complete")) << again.output;
  EXPECT_EQ(losses("out").size(), 4u);
}

TEST_F(JobTest, EveryWayToStartRanksGivesTheSameLosses) {
  const Outcome spawned = run_apus(job("spawned", 3), {{"NPROC_PER_NODE", "2"}});
  ASSERT_EQ(spawned.code, 0) << spawned.output;
  Words launched = {"launch", "--nproc_per_node=2", "--"};
  launched = with(launched, job("launched", 3));
  const Outcome launch = run_apus(launched);
  ASSERT_EQ(launch.code, 0) << launch.output;
  const Outcome alias = run_apus(with({"rlhf", "--rlhf_type", "dpo"},
                                      [&] {
                                        const Words words = job("alias", 3);
                                        return Words(words.begin() + 1, words.end());
                                      }()),
                                 {{"NPROC_PER_NODE", "2"}});
  ASSERT_EQ(alias.code, 0) << alias.output;
  EXPECT_EQ(losses("spawned").size(), 3u);
  EXPECT_EQ(losses("launched"), losses("spawned"));
  EXPECT_EQ(losses("alias"), losses("spawned"));
}

TEST_F(JobTest, TwoNodesMeetAtTheFirst) {
  const std::string port = std::to_string(comm::make_tcp_store({.port = 0, .is_server = true})->port());
  const auto node = [&](const std::string& rank) {
    const Words launch = {"launch",        "--nproc_per_node=1", "--nnodes=2",    "--node_rank", rank,
                          "--master_addr", "127.0.0.1",          "--master_port", port,          "--"};
    return std::make_unique<Running>(apus_program(), with(launch, job("nodes", 3)),
                                     job_environment({{"GLOO_SOCKET_IFNAME", "lo"}}));
  };
  const auto second = node("1");
  const auto first = node("0");
  const Outcome outcome = first->wait();
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(second->wait().code, 0) << second->output();
  EXPECT_TRUE(outcome.says("world_size=2, rank=0, local_rank=0")) << outcome.output;
  EXPECT_TRUE(second->output().find("world_size=2, rank=1, local_rank=0") != std::string::npos)
      << second->output();
  EXPECT_EQ(losses("nodes").size(), 3u);
}

TEST_F(JobTest, WithRankSetNprocPerNodeIsIgnored) {
  const Outcome outcome = run_apus(
      job("out", 1), {{"NPROC_PER_NODE", "4"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("world_size=1, rank=0, local_rank=0")) << outcome.output;
}

TEST_F(JobTest, OneProcessNeedsNoLauncherAndTrainKnowsTheTaskByItsColumns) {
  Words words = instead(job("out", 2), "--deepspeed", "none");
  words.front() = "train";
  const Outcome outcome = run_apus(with(words, {"--use_fast_tokenizer", "true", "--eval_steps", "1"}));
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("Without effect here, meant for Python programs: --use_fast_tokenizer"))
      << outcome.output;
  EXPECT_TRUE(outcome.says("warning: --eval_steps is given, but neither --val_dataset")) << outcome.output;
  EXPECT_EQ(losses("out").size(), 2u);
}

TEST_F(JobTest, InBfloat16ItRunsToo) {
  const Outcome outcome = run_apus(instead(job("out", 3), "--bf16", "true"), {{"NPROC_PER_NODE", "2"}});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("\"bf16\":{\"enabled\":true}")) << outcome.output;
  ASSERT_EQ(losses("out").size(), 3u);
  EXPECT_FALSE(adapter("out", 3).empty());
}

TEST_F(JobTest, FlagsMayStandInAFile) {
  const auto config = folder_.put("job.json", R"({"max_steps": 2, "lora_rank": 2, "seed": 5})");
  Words words = job("out", 9);
  words = instead(words, "--max_steps", "1");
  const Outcome outcome = run_apus(with(words, {"--config", config.string()}));
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(losses("out").size(), 1u);
  EXPECT_NE(read_text(folder_ / "out/args.json").find("\"seed\": 5"), std::string::npos);
}

TEST_F(JobTest, AHubIdIsTheFolderOfTheLocalCache) {
  const std::filesystem::path cached = folder_ / "hf/hub/models--Some--Model-1.5/snapshots/abc";
  std::filesystem::create_directories(cached.parent_path());
  std::filesystem::rename(model_, cached);
  folder_.put("hf/hub/models--Some--Model-1.5/refs/main", "abc");
  const Outcome outcome = run_apus(instead(job("out", 2), "--model", "Some/Model-1.5"),
                                   {{"NPROC_PER_NODE", "2"}, {"HF_HOME", (folder_ / "hf").string()}});
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const auto args = nlohmann::json::parse(read_text(folder_ / "out/args.json"));
  EXPECT_EQ(args.at("model"), cached.string());
}

TEST_F(JobTest, HeldOutRowsAreNotCountedAsTrained) {
  const Outcome outcome = run_apus(with(job("out", 2), {"--split_dataset_ratio", "0.25"}));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const size_t last = outcome.output.rfind("rows: ");
  ASSERT_NE(last, outcome.output.npos) << outcome.output;
  const std::string summary = outcome.output.substr(last, outcome.output.find('\n', last) - last);
  std::istringstream rows(read_text(rows_));
  int64_t read = 0;
  for (std::string row; std::getline(rows, row);) ++read;
  const int64_t held_out = read / 4;
  EXPECT_EQ(summary, "rows: " + std::to_string(read) + " read = " + std::to_string(read - held_out) +
                         " trained whole + 0 truncated + " + std::to_string(held_out) +
                         " held out + 0 dropped");
}

}  // namespace
}  // namespace apus::program_tests
