#include "cli/compute_threads.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

TEST(ComputeThreads, FollowTheVariableOrShareTheMachine) {
  EXPECT_EQ(compute_threads(Environment(Environment::Map{{"OMP_NUM_THREADS", "3"}}), 1), 3);
  EXPECT_EQ(compute_threads({}, 4096), 1);
  EXPECT_GE(compute_threads({}, 1), 1);
}

TEST(ComputeThreads, NonsenseIsRefused) {
  EXPECT_THROW(compute_threads(Environment(Environment::Map{{"OMP_NUM_THREADS", "0"}}), 1), ConfigError);
  EXPECT_THROW(compute_threads(Environment(Environment::Map{{"OMP_NUM_THREADS", "many"}}), 1), ConfigError);
}

}  // namespace
}  // namespace apus::cli
