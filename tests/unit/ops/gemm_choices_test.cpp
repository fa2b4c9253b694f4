#include "apus/ops/gemm_choices.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"

namespace apus::ops {
namespace {

TEST(GemmChoices, TheCpuHasNone) {
  const ScratchFolder folder;
  save_gemm_choices(folder.path(), at::kCPU);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(load_gemm_choices(folder.path(), at::kCPU), 0);
}

}  // namespace
}  // namespace apus::ops
