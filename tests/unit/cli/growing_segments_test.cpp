#include "cli/growing_segments.h"

#include <gtest/gtest.h>

namespace apus::cli {
namespace {

TEST(GrowingSegments, AUsersOwnSettingStands) {
  for (const char* variable : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    const Environment environment(Environment::Map{{variable, "max_split_size_mb:512"}});
    EXPECT_FALSE(grow_segments(environment, 0)) << variable;
  }
}

}  // namespace
}  // namespace apus::cli
