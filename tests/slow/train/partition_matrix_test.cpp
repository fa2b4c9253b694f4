// numbers.md point 1 in full: policies x full or LoRA x SFT or DPO x worlds x recompute x accumulation,
// twenty steps each. tests/distributed/train/equality_matrix_test.cpp holds the cover that runs by default.
#include <gtest/gtest.h>

#include "tests/support/equality_matrix.h"

namespace apus::testing {
namespace {

class PartitionMatrix : public ::testing::TestWithParam<MatrixCell> {};

TEST_P(PartitionMatrix, EqualsOneRank) {
  expect_cell_equals_one_rank(GetParam(), 20);
}

INSTANTIATE_TEST_SUITE_P(Full, PartitionMatrix, ::testing::ValuesIn(matrix_cells(matrix_combinations())),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace apus::testing
