#include <gtest/gtest.h>

#include "tests/support/apus_program.h"

namespace apus::program_tests {
namespace {

namespace fs = std::filesystem;

const fs::path kVenv = APUS_BINARY_DIR "/torchrun-venv";

/// A Python environment with PyPI's torch, made once a build folder; empty, or why it cannot be had.
std::string prepare_torchrun() {
  const fs::path done = kVenv / "apus-torchrun-is-here";
  if (fs::exists(done)) return "";
  const std::string script = "python3 -m venv '" + kVenv.string() + "' && '" + kVenv.string() +
                             "/bin/pip' install --quiet torch==2.11.0 numpy && touch '" + done.string() + "'";
  const int status = std::system(("( " + script + " ) > '" + kVenv.string() + ".log' 2>&1").c_str());
  if (status == 0) return "";
  const std::string log = read_text(kVenv.string() + ".log");
  return "pip cannot get torch==2.11.0: " + log.substr(log.size() - std::min<size_t>(log.size(), 2000));
}

/// torchrun must fail as it would for a user if it is there but broken; only a missing download skips.
class Torchrun : public TinyJob {
 protected:
  void SetUp() override {
    const std::string missing = prepare_torchrun();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }

  /// `torchrun --no-python --nproc_per_node=N apus WORDS`, with the variables that people leave exported.
  Outcome torchrun(int ranks, const Words& words) const {
    const std::string path = kVenv.string() + "/bin:" + Environment::from_process().get_or("PATH", "");
    const Words launch = {"--no-python", "--nproc_per_node=" + std::to_string(ranks),
                          apus_program().string()};
    return Running(kVenv / "bin/torchrun", with(launch, words),
                   job_environment({{"PATH", path}, {"NPROC_PER_NODE", std::to_string(ranks)}}))
        .wait();
  }
};

TEST_F(Torchrun, GivesTheLossesOfNprocPerNode) {
  const Outcome spawned = run_apus(job("spawned", 6), {{"NPROC_PER_NODE", "4"}});
  ASSERT_EQ(spawned.code, 0) << spawned.output;
  const Outcome launched = torchrun(4, job("launched", 6));
  ASSERT_EQ(launched.code, 0) << launched.output;
  for (const char* rank : {"0", "1", "2", "3"}) {
    EXPECT_TRUE(launched.says(std::string("world_size=4, rank=") + rank + ", local_rank=" + rank))
        << launched.output;
  }
  EXPECT_EQ(losses("spawned").size(), 6u);
  EXPECT_EQ(losses("launched"), losses("spawned"));
  EXPECT_TRUE(adapter("launched", 6) == adapter("spawned", 6)) << "the adapters differ";
}

TEST_F(Torchrun, ShowsAWrongFlagInItsReport) {
  const Outcome outcome = torchrun(4, with(job("out", 1), {"--lora_rnak", "8"}));
  EXPECT_NE(outcome.code, 0);
  const std::string message = "unknown flag --lora_rnak (did you mean '--lora_rank'?)";
  EXPECT_TRUE(outcome.says(message)) << outcome.output;
  // Ranks other than 0 leave it to torchrun's report.
  const size_t first = outcome.output.find("error: " + message);
  const bool twice =
      first != std::string::npos && outcome.output.find("error: " + message, first + 1) != std::string::npos;
  EXPECT_FALSE(twice) << outcome.output;
}

}  // namespace
}  // namespace apus::program_tests
