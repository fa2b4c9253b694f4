#include "comm/slurm.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/launch_environment.h"

namespace apus::comm {
namespace {

TEST(FirstSlurmHost, PlainListsAndBrackets) {
  EXPECT_EQ(first_slurm_host("gpu07"), "gpu07");
  EXPECT_EQ(first_slurm_host("gpu07,gpu08"), "gpu07");
  EXPECT_EQ(first_slurm_host("gpu[07-09,12],cpu1"), "gpu07");
  EXPECT_EQ(first_slurm_host("gpu[3,5]"), "gpu3");
  EXPECT_EQ(first_slurm_host("a-b[001]"), "a-b001");
  EXPECT_EQ(first_slurm_host("rack[1-2]-gpu,x"), "rack1-gpu");
  EXPECT_EQ(first_slurm_host("rack[1-2]gpu[03-04]"), "rack1gpu03");
  EXPECT_EQ(first_slurm_host("plain,gpu[1-2]"), "plain");
  EXPECT_EQ(first_slurm_host("gpu[1-2],plain"), "gpu1");
}

TEST(FirstSlurmHost, BrokenListsAreRefused) {
  EXPECT_THROW(first_slurm_host(""), ConfigError);
  EXPECT_THROW(first_slurm_host("gpu[07"), ConfigError);
  EXPECT_THROW(first_slurm_host(",x"), ConfigError);
}

TEST(SlurmPort, LiesInItsRangeAndFollowsTheJob) {
  EXPECT_EQ(slurm_port(0), 20000);
  EXPECT_EQ(slurm_port(1234567), 20000 + 1234567 % 20000);
  EXPECT_EQ(slurm_port(19999), 39999);
}

TEST(SlurmTasksOnNode, CompactLists) {
  EXPECT_EQ(slurm_tasks_on_node("V", "4", 0), 4);
  EXPECT_EQ(slurm_tasks_on_node("V", "4(x2),1", 1), 4);
  EXPECT_EQ(slurm_tasks_on_node("V", "4(x2),1", 2), 1);
  EXPECT_EQ(slurm_tasks_on_node("V", "2,3", 0), 2);
  EXPECT_EQ(slurm_tasks_on_node("V", "2,3", 7), 3);
}

TEST(SlurmTasksOnNode, BrokenListsNameTheVariable) {
  for (const char* list : {"", "x", "4(x", "4(x0)", "4(x2", "4;5", "-1"}) {
    try {
      slurm_tasks_on_node("SLURM_TASKS_PER_NODE", list, 5);
      FAIL() << "expected ConfigError for '" << list << "'";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("SLURM_TASKS_PER_NODE"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace apus::comm
