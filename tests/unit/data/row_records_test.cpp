#include "data/row_records.h"

#include "apus/base/error.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

template <typename Row>
std::vector<uint32_t> record_of(const Row& row) {
  std::vector<uint32_t> words;
  append_record(row, words);
  return words;
}

void expect_same(const SftRow& row) {
  SftRow back;
  ASSERT_TRUE(read_record(record_of(row), back));
  EXPECT_EQ(back.input_ids, row.input_ids);
  EXPECT_EQ(back.labels, row.labels);
  EXPECT_EQ(back.weights, row.weights);
  EXPECT_EQ(back.channel, row.channel);
}

TEST(RowRecords, TextsComeBackAsTheyWere) {
  expect_same({{5}, {5}});
  expect_same({{1, 2, 3, 4}, {-100, -100, 3, 4}});
  expect_same({{1, 2, 3, 4}, {-100, 7, 3, -100}});
  expect_same({{1, 2, 2}, {9, 8, 7}});
  expect_same({{0, 151'645, 2'147'483'647}, {-100, 151'645, 0}, {0.0f, 0.25f, 3.0f}});
}

TEST(RowRecords, ChannelsComeBackWhateverTheirLength) {
  for (const std::string channel : {"a", "code", "maths", "a longer \u00fc name"}) {
    SftRow row{.input_ids = {1, 2}, .labels = {-100, 2}, .channel = channel};
    expect_same(row);
    row.weights = {0.0f, 0.5f};
    expect_same(row);
  }
  SftRow row{.input_ids = {1, 2}, .labels = {-100, 2}, .channel = "code"};
  std::vector<uint32_t> words = record_of(row);
  words.pop_back();
  EXPECT_FALSE(read_record(words, row)) << "a channel that is cut short";
}

TEST(RowRecords, LabelsThatFollowTheIdsTakeAWordARun) {
  SftRow row;
  for (int32_t i = 0; i < 1000; ++i) {
    row.input_ids.push_back(i);
    row.labels.push_back(i < 600 ? kIgnoredLabel : i);
  }
  EXPECT_EQ(record_of(row).size(), 1000u + 4 + 2);
}

TEST(RowRecords, PairsComeBackAsTheyWere) {
  for (const std::optional<float> margin :
       {std::optional<float>(), std::optional<float>(0.0f), std::optional<float>(-1.5f)}) {
    DpoRow row = make_pair(5, 3, 2);
    row.chosen_prompt_begin = 5;
    row.rejected_prompt_begin = 2;
    row.margin = margin;
    DpoRow back;
    ASSERT_TRUE(read_record(record_of(row), back));
    EXPECT_EQ(back.prompt_ids, row.prompt_ids);
    EXPECT_EQ(back.chosen_ids, row.chosen_ids);
    EXPECT_EQ(back.rejected_ids, row.rejected_ids);
    EXPECT_EQ(back.chosen_prompt_begin, 5);
    EXPECT_EQ(back.rejected_prompt_begin, 2);
    EXPECT_EQ(back.margin, margin);
    EXPECT_EQ(tokens_of(back), row.chosen_length() + row.rejected_length());
  }
}

TEST(RowRecords, NoChangedWordIsReadBeyondTheRecord) {
  const SftRow text{{1, 2, 3, 4}, {-100, 7, 3, -100}, {0, 1, 1, 0}};
  DpoRow pair = make_pair(3, 2, 2);
  const auto try_all = [](std::vector<uint32_t> words, auto row) {
    for (size_t at = 0; at < words.size(); ++at) {
      for (const uint32_t value : {0u, 1u, 3u, 0x7fffffffu, 0xffffffffu}) {
        std::vector<uint32_t> changed = words;
        changed[at] = value;
        read_record(changed, row);  // under the sanitizers: nothing outside the words is touched
      }
      EXPECT_FALSE(read_record(std::span(words).first(at), row)) << at;
    }
    words.push_back(0);
    EXPECT_FALSE(read_record(words, row)) << "a word too many";
  };
  try_all(record_of(text), SftRow());
  try_all(record_of(pair), DpoRow());
}

TEST(RowRecords, RefusesARowThatDoesNotFitTogether) {
  EXPECT_THROW(record_of(SftRow{{1, 2}, {1}}), ShapeError);
  EXPECT_THROW(record_of(SftRow{{1, 2}, {1, 2}, {1.0f}}), ShapeError);
  EXPECT_THROW(record_of(SftRow{}), ShapeError);
}

}  // namespace
}  // namespace apus::data
