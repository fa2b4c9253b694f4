#include "apus/models/rope.h"

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::models {
namespace {

using namespace apus::testing;
using ops::RopeType;

const ops::RopeShape kShape{.head_dim = 8, .theta = 10000.0, .max_position_embeddings = 6};

ops::RopeScaling dynamic() {
  return {.type = RopeType::kDynamic, .factor = 4};
}

ops::RopeScaling longrope() {
  return {.type = RopeType::kLongrope,
          .factor = 3,
          .original_max_position_embeddings = 6,
          .short_factor = {1, 1.5, 2, 2.5},
          .long_factor = {2, 4, 8, 16}};
}

ops::RotaryTables tables(Rope& rope, const std::shared_ptr<const nn::RowLayout>& rows) {
  return rope.tables(*rows, at::kCPU, at::kFloat);
}

/// The tables of a sequence alone, on a fresh model.
ops::RotaryTables alone(const ops::RopeScaling& scaling, int64_t length) {
  Rope rope(kShape, scaling);
  return tables(rope, nn::RowLayout::packed({length}));
}

void expect_rows(const ops::RotaryTables& found, int64_t first, const ops::RotaryTables& wanted) {
  const int64_t rows = wanted.cos_TH.size(0);
  expect_equal(found.cos_TH.narrow(0, first, rows), wanted.cos_TH);
  expect_equal(found.sin_TH.narrow(0, first, rows), wanted.sin_TH);
}

TEST(Rope, TakesEachSequencesOwnLengthWhateverElseIsInTheBatch) {
  for (const ops::RopeScaling& scaling : {dynamic(), longrope()}) {
    Rope rope(kShape, scaling);
    const std::vector<int64_t> lengths = {4, 9, 0, 7, 6};
    const ops::RotaryTables packed = tables(rope, nn::RowLayout::packed(lengths));
    const ops::RotaryTables padded = tables(rope, nn::RowLayout::padded(lengths, 11));
    EXPECT_TRUE(padded.cos_TH.isfinite().all().item<bool>());
    int64_t first = 0;
    for (size_t s = 0; s < lengths.size(); ++s) {
      const ops::RotaryTables wanted = alone(scaling, lengths[s]);
      expect_rows(packed, first, wanted);
      expect_rows(padded, static_cast<int64_t>(s) * 11, wanted);
      first += lengths[s];
    }
    EXPECT_GT(largest(alone(scaling, 9).cos_TH[5] - alone(scaling, 6).cos_TH[5]), 1e-2)
        << "the rule does nothing";
  }
}

TEST(Rope, RulesWithoutALengthGiveEveryBatchTheSameAngles) {
  Rope rope(kShape, {.type = RopeType::kLinear, .factor = 2}, RopeLength::kBatch);
  const ops::RotaryTables both = tables(rope, nn::RowLayout::packed({3, 40}));
  expect_rows(both, 0, alone({.type = RopeType::kLinear, .factor = 2}, 3));
  EXPECT_NEAR(both.cos_TH[1][0].item<double>(), std::cos(0.5), 1e-6);
}

// transformers: grows with the longest batch, and stays there until one is shorter than
// max_position_embeddings.
TEST(Rope, ByBatchADynamicRuleRemembersTheLongest) {
  Rope rope(kShape, dynamic(), RopeLength::kBatch);
  const at::Tensor at_ten = alone(dynamic(), 10).cos_TH[2], at_six = alone(dynamic(), 6).cos_TH[2];
  expect_equal(tables(rope, nn::RowLayout::padded({3, 8}, 10)).cos_TH[2], at_ten);
  expect_equal(tables(rope, nn::RowLayout::packed({7})).cos_TH[2], at_ten);
  expect_equal(tables(rope, nn::RowLayout::packed({6})).cos_TH[2], at_ten);
  expect_equal(tables(rope, nn::RowLayout::packed({})).cos_TH, at::empty({0, 8}));
  expect_equal(tables(rope, nn::RowLayout::packed({6})).cos_TH[2], at_ten);
  expect_equal(tables(rope, nn::RowLayout::packed({5})).cos_TH[2], at_six);
  expect_equal(tables(rope, nn::RowLayout::packed({6})).cos_TH[2], at_six);
  expect_equal(tables(rope, nn::RowLayout::packed({3, 7})).cos_TH[2], alone(dynamic(), 7).cos_TH[2]);
}

TEST(Rope, ByBatchLongropeHasNoMemory) {
  Rope rope(kShape, longrope(), RopeLength::kBatch);
  expect_equal(tables(rope, nn::RowLayout::padded({3, 5}, 7)).cos_TH[2], alone(longrope(), 7).cos_TH[2]);
  expect_equal(tables(rope, nn::RowLayout::packed({3, 6})).cos_TH[2], alone(longrope(), 6).cos_TH[2]);
}

TEST(Rope, ASharedPromptTurnsAsTheWholeSequencesBehindIt) {
  Rope rope(kShape, dynamic());
  // Prompt of 3 with two answers of 5; prompt of 2 with answers of 1 and 4, both within the first length.
  const auto rows = nn::RowLayout::prefixed({3, 5, 5, 2, 1, 4}, {-1, 0, 0, -1, 3, 3});
  const ops::RotaryTables found = tables(rope, rows), eight = alone(dynamic(), 8), six = alone(dynamic(), 6);
  expect_equal(found.cos_TH.narrow(0, 0, 8), eight.cos_TH);
  expect_equal(found.cos_TH.narrow(0, 8, 5), eight.cos_TH.narrow(0, 3, 5));
  expect_equal(found.cos_TH.narrow(0, 13, 2), six.cos_TH.narrow(0, 0, 2));
  expect_equal(found.cos_TH.narrow(0, 16, 4), six.cos_TH.narrow(0, 2, 4));
}

TEST(Rope, ASharedPromptThatIsNotTheSameForBothAnswersIsRefused) {
  const auto rows = nn::RowLayout::prefixed({3, 5, 4}, {-1, 0, 0});
  Rope by_length(kShape, dynamic());
  try {
    tables(by_length, rows);
    FAIL() << "did not throw";
  } catch (const NotSupported& error) {
    const std::string message = error.what();
    for (const char* part : {"8 and 7 tokens", "share a prompt", "kPadded"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  Rope plain(kShape, {});
  EXPECT_EQ(tables(plain, rows).cos_TH.size(0), 12);
  Rope by_list(kShape, longrope());  // 7 and 8 are both beyond 6: one list
  expect_equal(tables(by_list, rows).cos_TH.narrow(0, 0, 8), alone(longrope(), 8).cos_TH);
}

TEST(Rope, ScalesCosinesAndSinesByTheAttentionFactor) {
  Rope rope(
      kShape,
      {.type = RopeType::kYarn, .factor = 4, .original_max_position_embeddings = 6, .attention_factor = 0.5});
  const ops::RotaryTables found = rope.tables(*nn::RowLayout::packed({2}), at::kCPU, at::kBFloat16);
  EXPECT_EQ(found.cos_TH.scalar_type(), at::kBFloat16);
  EXPECT_EQ(found.cos_TH[0][0].item<double>(), 0.5);
}

}  // namespace
}  // namespace apus::models
