#include <gtest/gtest.h>

#include "tests/support/apus_program.h"

namespace apus::program_tests {
namespace {

constexpr int kSteps = 150;

/// Jobs that are interrupted, and what the same command makes of it.
class KilledRank : public TinyJob {
 protected:
  Words command(const std::string& out) const { return job(out, kSteps); }

  bool has_checkpoint(const std::string& out, int step) const {
    return std::filesystem::exists(folder_ / out / ("checkpoint-" + std::to_string(step)));
  }

  std::unique_ptr<Running> start_and_wait_for_checkpoint(const std::string& out) const {
    auto running =
        std::make_unique<Running>(apus_program(), command(out), job_environment({{"NPROC_PER_NODE", "2"}}));
    wait_until("checkpoint-8", [&] { return has_checkpoint(out, 8) || running->ended(); });
    return running;
  }

  void expect_same_as_uninterrupted(const std::string& out) const {
    const Outcome whole = run_apus(command("whole"), {{"NPROC_PER_NODE", "2"}});
    ASSERT_EQ(whole.code, 0) << whole.output;
    EXPECT_EQ(losses("whole").size(), static_cast<size_t>(kSteps));
    EXPECT_EQ(losses(out), losses("whole"));
    EXPECT_FALSE(adapter(out, kSteps).empty());
    EXPECT_TRUE(adapter(out, kSteps) == adapter("whole", kSteps)) << "the adapters differ";
  }
};

TEST_F(KilledRank, IsNamedLastAndTheSameCommandResumesBitForBit) {
  auto running = start_and_wait_for_checkpoint("out");
  const pid_t victim = running->rank(1);
  ASSERT_GT(victim, 0) << running->output();
  const auto killed_at = std::chrono::steady_clock::now();
  ::kill(victim, SIGKILL);
  const Outcome broken = running->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - killed_at, std::chrono::seconds(20));
  EXPECT_EQ(broken.code, 137) << broken.output;
  EXPECT_EQ(broken.last_line().find("error: rank 1 was killed by signal 9 (SIGKILL)"), 0u) << broken.output;
  EXPECT_FALSE(has_checkpoint("out", kSteps)) << "the job was over before the rank was killed";

  const Outcome resumed = run_apus(command("out"), {{"NPROC_PER_NODE", "2"}});
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_TRUE(resumed.says("Resuming from ")) << resumed.output;
  expect_same_as_uninterrupted("out");
  const Outcome again = run_apus(command("out"), {{"NPROC_PER_NODE", "2"}});
  EXPECT_EQ(again.code, 0);
  EXPECT_TRUE(again.says("is complete")) << again.output;
}

TEST_F(KilledRank, SigtermSavesAndTheSameCommandGoesOn) {
  auto running = start_and_wait_for_checkpoint("out");
  ::kill(running->pid(), SIGTERM);
  const Outcome stopped = running->wait();
  EXPECT_EQ(stopped.code, 143) << stopped.output;
  EXPECT_TRUE(stopped.says("Stopped after step ")) << stopped.output;
  EXPECT_FALSE(has_checkpoint("out", kSteps)) << "the job was over before it was stopped";
  const Outcome resumed = run_apus(command("out"), {{"NPROC_PER_NODE", "2"}});
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  expect_same_as_uninterrupted("out");
}

TEST_F(KilledRank, TheLauncherStartsAllAgain) {
  Words words = {"launch", "--nproc_per_node=2", "--max_restarts=1", "--restartable=True", "--"};
  Running running(apus_program(), with(words, command("out")), job_environment());
  wait_until("checkpoint-8", [&] { return has_checkpoint("out", 8) || running.ended(); });
  const pid_t victim = running.rank(0);
  ASSERT_GT(victim, 0) << running.output();
  ::kill(victim, SIGKILL);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("starting all ranks again (restart 1 of 1)")) << outcome.output;
  EXPECT_TRUE(outcome.says("Resuming from ")) << outcome.output;
  EXPECT_EQ(losses("out").size(), static_cast<size_t>(kSteps));
}

TEST_F(KilledRank, RanksDieWithTheirLauncher) {
  auto running = start_and_wait_for_checkpoint("out");
  const pid_t rank = running->rank(0);
  ASSERT_GT(rank, 0) << running->output();
  ::kill(running->pid(), SIGKILL);
  running->wait();
  const std::string state = "/proc/" + std::to_string(rank) + "/stat";
  wait_until("the rank's end", [&] {
    const std::string text = read_text(state);
    return text.empty() || text.find(") Z ") != text.npos;
  });
}

}  // namespace
}  // namespace apus::program_tests
