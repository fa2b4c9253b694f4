#include "ops/attention_shape.h"

#include <gtest/gtest.h>

namespace apus::ops::cuda {
namespace {

AttentionSizes seven_billion(int64_t sequences, int64_t max_length, int64_t rows) {
  return {.heads = 28,
          .kv_heads = 4,
          .head_dim = 128,
          .sequences = sequences,
          .slots = 16,
          .max_length = max_length,
          .rows = rows,
          .out_stride = 28 * 128};
}

TEST(AttentionShape, ServesTheCallItIsFor) {
  for (int64_t rows = 1; rows < 70'000; rows = rows * 5 / 4 + 1) {
    for (const int64_t length : {int64_t{1}, rows / 3, rows}) {
      const AttentionSizes sizes = seven_billion(5, length, rows);
      for (const PlanShape& plan : {backward_plan(sizes), deterministic_backward_plan(sizes)}) {
        EXPECT_GE(plan.max_length, length);
        EXPECT_GE(plan.max_rows, rows);
        EXPECT_GE(plan.max_rows, plan.max_length);
        EXPECT_GE(plan.sequences, 5);
        EXPECT_LE(plan.sequences, 16);
        EXPECT_TRUE(plans_take(sizes));
      }
    }
  }
}

TEST(AttentionShape, WastesLittleWorkspace) {
  for (int64_t rows = 1; rows < 1'000'000; rows = rows * 9 / 8 + 1) {
    const int64_t planned = backward_plan(seven_billion(1, rows, rows)).max_rows;
    EXPECT_LE(planned - rows, std::max<int64_t>(1023, rows / 8)) << rows;
  }
  EXPECT_EQ(backward_plan(seven_billion(4, 4096, 16384)).max_rows, 16384);
}

TEST(AttentionShape, SharesPlansBetweenLikeCalls) {
  const PlanShape plan = backward_plan(seven_billion(3, 4096, 16384));
  EXPECT_EQ(plan, backward_plan(seven_billion(12, 700, 15500)));
  EXPECT_NE(plan, backward_plan(seven_billion(3, 4097, 16384)));
  // The forward pass does not care how many rows there are.
  EXPECT_EQ(forward_plan(seven_billion(3, 4096, 16384)), forward_plan(seven_billion(3, 1, 5000)));
  EXPECT_FALSE(forward_plan(seven_billion(3, 4096, 16384)).is_backward());
  EXPECT_TRUE(plan.is_backward());
}

TEST(AttentionShape, DeterministicPlansFitTheirSequences) {
  const PlanShape plan = deterministic_backward_plan(seven_billion(2, 4096, 8192));
  EXPECT_TRUE(plan.deterministic);
  EXPECT_EQ(plan.sequences, 2);
  EXPECT_EQ(plan.max_length, 4096);
  EXPECT_EQ(score_bytes(plan), int64_t{2} * 2 * 28 * 4096 * 4096);
  EXPECT_EQ(deterministic_backward_plan(seven_billion(9, 700, 4000)).sequences, 12);
  EXPECT_EQ(deterministic_backward_plan(seven_billion(9, 700, 4000)).max_length, 1024);
}

TEST(AttentionShape, EvenLengthsHavePlansOfTheirOwn) {
  EXPECT_TRUE(is_even(seven_billion(4, 4096, 16384)));
  EXPECT_TRUE(is_even(seven_billion(1, 1536, 1536)));
  EXPECT_FALSE(is_even(seven_billion(4, 4096, 16383))) << "one is shorter";
  EXPECT_FALSE(is_even(seven_billion(2, 1024, 2304))) << "padding";
  EXPECT_FALSE(is_even(seven_billion(4, 512, 2048))) << "too short to gain";
  EXPECT_FALSE(is_even(seven_billion(1, 1500, 1500))) << "every length would have its plan";
  EXPECT_FALSE(is_even(seven_billion(0, 0, 0)));
  const AttentionSizes sizes = seven_billion(3, 1536, 4608);
  const PlanShape forward = even_plan(forward_plan(sizes), sizes),
                  backward = even_plan(backward_plan(sizes), sizes);
  EXPECT_EQ(forward.sequences, 3);
  EXPECT_EQ(forward.max_length, 1536);
  EXPECT_FALSE(forward.is_backward());
  EXPECT_EQ(backward.max_rows, 4608);
  EXPECT_NE(forward, forward_plan(sizes));
}

TEST(AttentionShape, RefusesMoreElementsThanWereSeenRight) {
  // 74,898 rows of 3,584 elements are the last within 2^28; the plan's class counts.
  EXPECT_TRUE(plans_take(seven_billion(16, 4096, 70'000)));
  EXPECT_FALSE(plans_take(seven_billion(16, 4096, 75'000)));
  AttentionSizes roomy = seven_billion(16, 4096, 70'000);
  roomy.out_stride += 512;
  EXPECT_FALSE(plans_take(roomy));
}

TEST(AttentionShape, TakesNoRowsAndEmptySequences) {
  const PlanShape plan = deterministic_backward_plan(seven_billion(0, 0, 0));
  EXPECT_EQ(plan.sequences, 1);
  EXPECT_GE(plan.max_length, 1);
  EXPECT_GE(plan.max_rows, 1);
}

}  // namespace
}  // namespace apus::ops::cuda
