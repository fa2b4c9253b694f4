#include "apus/data/collator.h"


#include <set>

#include "apus/base/error.h"
#include "apus/data/tokenizer_config.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Values = std::vector<int64_t>;

TEST(Collator, PadsPairsToTheLongestOfAllSequences) {
  const std::vector<DpoRow> rows = {make_pair(3, 2, 1), make_pair(2, 1, 2)};
  const Batch batch = collate_dpo(rows, Values{2, 0}, {.pad_id = 9});
  EXPECT_EQ(batch.pairs, 2);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.ordinals, (Values{2, 0}));
  EXPECT_EQ(batch.layout->padded_length, 5);
  EXPECT_EQ(batch.layout->lengths, (Values{5, 3, 4, 4}));
  EXPECT_EQ(values_of(batch.tokens_T), (Values{1, 2, 3,   100, 101,  //
                                               1, 2, 100, 9,   9,    //
                                               1, 2, 3,   200, 9,    //
                                               1, 2, 200, 201, 9}));
  EXPECT_EQ(values_of(batch.target_rows_M), (Values{2, 3, 6, 12, 16, 17}));
  EXPECT_EQ(values_of(batch.targets_M), (Values{100, 101, 100, 200, 200, 201}));
  EXPECT_EQ(values_of(batch.target_sequences_M), (Values{0, 0, 1, 2, 3, 3}));
}

TEST(Collator, PackedAndPaddedBatchesHaveTheSameTargets) {
  const std::vector<DpoRow> rows = make_pairs(7);
  const Values ordinals = {0, 1, 2, 3, 4, 5, 6};
  const Batch padded = collate_dpo(rows, ordinals, {.pad_multiple = 8});
  const Batch packed = collate_dpo(rows, ordinals, {.layout = BatchLayout::kPacked});
  EXPECT_TRUE(packed.layout->is_packed());
  EXPECT_EQ(packed.layout->lengths, padded.layout->lengths);
  EXPECT_EQ(values_of(packed.targets_M), values_of(padded.targets_M));
  EXPECT_EQ(values_of(packed.target_sequences_M), values_of(padded.target_sequences_M));
  const Values padded_tokens = values_of(padded.tokens_T), packed_tokens = values_of(packed.tokens_T);
  const Values from = values_of(padded.target_rows_M), to = values_of(packed.target_rows_M);
  for (size_t m = 0; m < from.size(); ++m) {
    EXPECT_EQ(padded_tokens[static_cast<size_t>(from[m])], packed_tokens[static_cast<size_t>(to[m])]);
    EXPECT_EQ(padded_tokens[static_cast<size_t>(from[m]) + 1], values_of(padded.targets_M)[m]);
  }
}

TEST(Collator, TrainsEosEvenWhereItIsThePadToken_Pitfall41) {
  DpoRow row = make_pair(2, 2, 1);
  row.chosen_ids.back() = row.rejected_ids.back() = 5;
  const Batch batch = collate_dpo(std::vector{row}, Values{0}, {.pad_id = 5});
  EXPECT_EQ(values_of(batch.targets_M), (Values{100, 5, 5}));
}

TEST(Collator, TakesCutPromptsOfEachAnswer) {
  DpoRow row = make_pair(3, 2, 2);
  row.chosen_prompt_begin = 2;
  row.rejected_prompt_begin = 3;
  const Batch batch = collate_dpo(std::vector{row}, Values{0}, {.layout = BatchLayout::kPacked});
  EXPECT_EQ(values_of(batch.tokens_T), (Values{3, 100, 101, 200, 201}));
  EXPECT_EQ(values_of(batch.target_rows_M), (Values{0, 1, 3}));
  EXPECT_EQ(values_of(batch.targets_M), (Values{100, 101, 201}));
}

TEST(Collator, ShiftsLabelsByOne) {
  const std::vector<SftRow> rows = {{{20, 21}, {kIgnoredLabel, 21}}, {{10, 11, 12}, {10, kIgnoredLabel, 12}}};
  const Batch batch = collate_sft(rows, Values{1, 0}, {.pad_id = 0, .pad_multiple = 4});
  EXPECT_EQ(batch.pairs, 0);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(values_of(batch.tokens_T), (Values{20, 21, 0, 0, 10, 11, 12, 0}));
  EXPECT_EQ(values_of(batch.target_rows_M), (Values{0, 5}));
  EXPECT_EQ(values_of(batch.targets_M), (Values{21, 12}));
  EXPECT_EQ(values_of(batch.target_sequences_M), (Values{0, 1}));
  EXPECT_FALSE(batch.target_weights_M.defined());
}

TEST(Collator, GivesEachTargetItsWeight) {
  const std::vector<SftRow> rows = {{{20, 21, 22}, {kIgnoredLabel, 21, 22}, {0, 0.5F, 2}}, {{7, 8}, {7, 8}}};
  const Batch batch = collate_sft(rows, Values{0, 1}, {});
  const at::Tensor weights = batch.target_weights_M;
  ASSERT_EQ(weights.numel(), 3);
  EXPECT_EQ(weights.const_data_ptr<float>()[0], 0.5F);
  EXPECT_EQ(weights.const_data_ptr<float>()[1], 2.0F);
  EXPECT_EQ(weights.const_data_ptr<float>()[2], 1.0F);
}

TEST(Collator, CarriesMarginsWhereARowHasOne) {
  std::vector<DpoRow> rows = {make_pair(1, 1, 1), make_pair(1, 1, 1)};
  EXPECT_FALSE(collate_dpo(rows, Values{0, 1}, {}).pair_margins_P.defined());
  rows[1].margin = 0.25F;
  const at::Tensor margins = collate_dpo(rows, Values{0, 1}, {}).pair_margins_P;
  EXPECT_EQ(margins.const_data_ptr<float>()[0], 0.0F);
  EXPECT_EQ(margins.const_data_ptr<float>()[1], 0.25F);
}

TEST(Collator, RoundsThePaddedLengthUp) {
  const std::vector<DpoRow> rows = {make_pair(5, 4, 1)};
  EXPECT_EQ(collate_dpo(rows, Values{0}, {.pad_multiple = 8}).layout->padded_length, 16);
  EXPECT_EQ(collate_dpo(rows, Values{0}, {.pad_multiple = 9}).layout->padded_length, 9);
  EXPECT_EQ(collate_dpo(rows, Values{0}, {.pad_multiple = 8}).tokens_T.numel(), 32);
}

TEST(Collator, KeepsThePromptOfAPairOnce) {
  const std::vector<DpoRow> rows = {make_pair(3, 2, 1), make_pair(1, 1, 2)};
  const Batch batch = collate_dpo(rows, Values{5, 6}, {.layout = BatchLayout::kSharedPrompt});
  EXPECT_EQ(values_of(batch.tokens_T), (Values{1, 2, 3, 100, 101, 200,  //
                                               1, 100, 200, 201}));
  EXPECT_EQ(values_of(batch.layout->positions_T), (Values{0, 1, 2, 3, 4, 3, 0, 1, 1, 2}));
  EXPECT_EQ(batch.layout->lengths, (Values{3, 2, 1, 1, 1, 2}));
  EXPECT_EQ(batch.layout->prefixes, (Values{-1, 0, 0, -1, 3, 3}));
  // The last row of a prompt predicts the first token of both answers; targets count answers, chosen ones
  // first.
  EXPECT_EQ(values_of(batch.target_rows_M), (Values{2, 2, 3, 6, 6, 8}));
  EXPECT_EQ(values_of(batch.targets_M), (Values{100, 200, 101, 100, 200, 201}));
  EXPECT_EQ(values_of(batch.target_sequences_M), (Values{0, 2, 0, 1, 3, 3}));
  EXPECT_EQ(batch.pairs, 2);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.ordinals, (Values{5, 6}));
}

TEST(Collator, PairsWithDifferentOrNoPromptsStandWhole) {
  std::vector<DpoRow> rows = {make_pair(3, 2, 2), make_pair(2, 1, 1), make_pair(0, 2, 2)};
  rows[0].chosen_prompt_begin = 1;
  rows[1].chosen_prompt_begin = rows[1].rejected_prompt_begin = 1;
  const Batch batch = collate_dpo(rows, Values{0, 1, 2}, {.layout = BatchLayout::kSharedPrompt});
  EXPECT_EQ(values_of(batch.tokens_T), (Values{2, 3, 100, 101, 1, 2, 3, 200, 201,  //
                                               2, 100, 200,                        //
                                               100, 101, 200, 201}));
  EXPECT_EQ(batch.layout->prefixes, (Values{-1, -1, -1, 2, 2, -1, -1}));
  EXPECT_EQ(values_of(batch.target_rows_M), (Values{1, 2, 6, 7, 9, 9, 12, 14}));
  EXPECT_EQ(values_of(batch.target_sequences_M), (Values{0, 0, 3, 3, 1, 4, 2, 5}));
}

TEST(Collator, SharedPromptsHoldTheTargetsOfWholeAnswers) {
  const std::vector<DpoRow> rows = make_pairs(9);
  const Values ordinals = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const Batch whole = collate_dpo(rows, ordinals, {.layout = BatchLayout::kPacked});
  const Batch shared = collate_dpo(rows, ordinals, {.layout = BatchLayout::kSharedPrompt});
  const auto targets = [](const Batch& batch) {  // answer, token that predicts, its position, target
    std::multiset<Values> all;
    const Values owners = values_of(batch.target_sequences_M), from = values_of(batch.target_rows_M);
    for (size_t m = 0; m < owners.size(); ++m)
      all.insert({owners[m], values_of(batch.tokens_T)[static_cast<size_t>(from[m])],
                  values_of(batch.layout->positions_T)[static_cast<size_t>(from[m])],
                  values_of(batch.targets_M)[m]});
    return all;
  };
  EXPECT_EQ(targets(shared), targets(whole));
  int64_t prompts = 0;
  for (const DpoRow& row : rows) prompts += static_cast<int64_t>(row.prompt_ids.size());
  EXPECT_EQ(shared.tokens_T.numel(), whole.tokens_T.numel() - prompts);
}

TEST(Collator, TheEmptyBatchStillHasSomethingToRun) {
  for (const BatchLayout layout : {BatchLayout::kPadded, BatchLayout::kPacked, BatchLayout::kSharedPrompt}) {
    const Batch pairs = collate_dpo({}, {}, {.layout = layout, .pad_id = 7});
    EXPECT_TRUE(pairs.is_empty());
    EXPECT_EQ(pairs.pairs, 0);
    EXPECT_EQ(pairs.target_count(), 0);
    EXPECT_TRUE(pairs.target_rows_M.defined());
    EXPECT_EQ(values_of(pairs.tokens_T), (Values{7, 7}));
    EXPECT_EQ(pairs.layout->lengths, (Values{1, 1}));
    EXPECT_TRUE(pairs.layout->prefixes.empty());
    if (layout == BatchLayout::kSharedPrompt) continue;
    const Batch texts = collate_sft({}, {}, {.layout = layout, .pad_id = 7});
    EXPECT_TRUE(texts.is_empty());
    EXPECT_EQ(values_of(texts.tokens_T), (Values{7}));
  }
}

TEST(Collator, RefusesWhatDoesNotFit) {
  const std::vector<DpoRow> rows = {make_pair(1, 1, 1)};
  EXPECT_THROW(collate_dpo(rows, Values{0, 1}, {}), ShapeError);
  EXPECT_THROW(collate_dpo(rows, Values{0}, {.pad_multiple = 0}), ConfigError);
  EXPECT_THROW(collate_dpo(rows, Values{0}, {.layout = BatchLayout::kSharedPrompt, .pad_multiple = 8}),
               ConfigError);
  EXPECT_THROW(collate_sft({}, {}, {.layout = BatchLayout::kSharedPrompt}), ConfigError);
  EXPECT_NE(message_of<ConfigError>([&] {
              collate_dpo(rows, Values{0}, {.layout = BatchLayout::kPacked, .pad_multiple = 8});
            }).find("padding_free"),
            std::string::npos);
}

TEST(Collator, PadsWithThePadTokenElseEosElseZero) {
  TokenizerFolder folder;
  EXPECT_EQ(padding_id(folder), 0);
  folder.eos_id = 3;
  EXPECT_EQ(padding_id(folder), 3);
  folder.pad_id = 4;
  EXPECT_EQ(padding_id(folder), 4);
}

TEST(Collator, CarriesChannelsAndOriginsOfItsRows) {
  std::vector<SftRow> rows = {{.input_ids = {1, 2}, .labels = {1, 2}, .channel = "code", .place = {0, 3}},
                              {.input_ids = {3}, .labels = {3}, .place = {1, 9}}};
  const Batch batch = collate_sft(rows, Values{4, 5}, {});
  EXPECT_EQ(batch.channels, (std::vector<std::string>{"code", ""}));
  EXPECT_EQ(batch.origins, (std::vector<RowPlace>{{0, 3}, {1, 9}}));
  rows[0].channel.clear();
  EXPECT_TRUE(collate_sft(rows, Values{4, 5}, {}).channels.empty()) << "no row has one";
  EXPECT_TRUE(collate_sft({}, Values{}, {}).channels.empty());
  std::vector<DpoRow> pairs = {make_pair(2, 1, 1)};
  pairs[0].place = {0, 8};
  EXPECT_EQ(collate_dpo(pairs, Values{0}, {}).origins, (std::vector<RowPlace>{{0, 8}}));
}

}  // namespace
}  // namespace apus::data
