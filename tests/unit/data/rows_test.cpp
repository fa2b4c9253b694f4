#include "apus/data/rows.h"

#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

TEST(Rows, CountTheTokensOfBothSequences) {
  DpoRow row = make_pair(5, 3, 2);
  EXPECT_EQ(row.chosen_length(), 8);
  EXPECT_EQ(row.rejected_length(), 7);
  row.chosen_prompt_begin = 4;
  row.rejected_prompt_begin = 1;
  EXPECT_EQ(row.chosen_length(), 4);
  EXPECT_EQ(row.rejected_length(), 6);
}

TEST(Rows, CountTrainedTokensBehindTheFirstPosition) {
  EXPECT_EQ((SftRow{{1, 2, 3}, {1, -100, 3}}).trained_tokens(), 1);
  EXPECT_EQ((SftRow{{1, 2, 3}, {-100, 2, 3}}).trained_tokens(), 2);
  EXPECT_EQ((SftRow{{1}, {1}}).trained_tokens(), 0);
  EXPECT_EQ(SftRow{}.trained_tokens(), 0);
}

}  // namespace
}  // namespace apus::data
