#include "cli/env_facts.h"

#include <gtest/gtest.h>

namespace apus::cli {
namespace {

TEST(EnvFacts, MeminfoIsInKilobytes) {
  const std::string text =
      "MemTotal:       24684084 kB\nMemFree:         9571632 kB\nMemAvailable:      100 kB";
  EXPECT_EQ(meminfo_bytes(text, "MemTotal"), int64_t{24684084} * 1024);
  EXPECT_EQ(meminfo_bytes(text, "MemAvailable"), 102400);
  EXPECT_EQ(meminfo_bytes(text, "Mem"), std::nullopt);
  EXPECT_EQ(meminfo_bytes("MemTotal: lots\n", "MemTotal"), std::nullopt);
  EXPECT_EQ(meminfo_bytes("", "MemTotal"), std::nullopt);
}

TEST(EnvFacts, ThisMachineAnswers) {
  const EnvFacts facts = read_env_facts(Environment(Environment::Map{{"CUDA_VISIBLE_DEVICES", ""}}));
  EXPECT_GE(facts.usable_cpus, 1);
  EXPECT_GE(facts.online_cpus, facts.usable_cpus);
  ASSERT_TRUE(facts.memory_bytes && facts.available_memory_bytes);
  EXPECT_GT(*facts.memory_bytes, *facts.available_memory_bytes);
  EXPECT_FALSE(facts.survey.usable());
  EXPECT_TRUE(facts.gpus.gpus.empty());
  EXPECT_EQ(facts.versions.libtorch.substr(0, 2), "2.");
  EXPECT_TRUE(facts.environment.has("CUDA_VISIBLE_DEVICES"));
}

TEST(EnvFacts, WithoutAUsableGpuNoneIsListed) {
  EXPECT_TRUE(list_gpus({.state = GpuState::kUnusable, .count = 4}).gpus.empty());
}

}  // namespace
}  // namespace apus::cli
