#include "apus/data/packing.h"

#include <algorithm>
#include <set>

#include "apus/base/error.h"
#include "apus/data/batch.h"
#include "apus/data/collator.h"
#include "tests/unit/data/support/rows_fixture.h"
#include "tests/unit/data/support/texts.h"

namespace apus::data {
namespace {

using Values = std::vector<int64_t>;

std::vector<Values> packs_of(const PackedDataset& packed) {
  std::vector<Values> packs;
  for (int64_t pack = 0; pack < packed.size(); ++pack) {
    const auto rows = packed.rows_of(pack);
    packs.emplace_back(rows.begin(), rows.end());
  }
  return packs;
}

TEST(Packing, ARowJoinsTheFullestPackThatHasRoom) {
  const PackedDataset packed(make_texts(Values{6, 5, 4, 3, 2}), {.packing_length = 10, .shuffle = false});
  EXPECT_EQ(packs_of(packed), (std::vector<Values>{{0, 2}, {1, 3, 4}}));
  EXPECT_EQ(packed.report(), (PackingReport{.rows = 5, .packs = 2, .tokens = 20, .capacity = 20}));
  EXPECT_EQ(packed.report().efficiency(), 1.0);
}

TEST(Packing, EveryRowIsInOnePackAndNoPackIsTooLong) {
  const Values lengths = uneven_lengths(3000, 128);
  for (const int64_t window : {1, 100, 10'000}) {
    const PackedDataset packed(make_texts(lengths), {.packing_length = 128, .window = window});
    std::multiset<int64_t> rows;
    int64_t tokens = 0;
    for (int64_t pack = 0; pack < packed.size(); ++pack) {
      int64_t sum = 0;
      for (const int64_t row : packed.rows_of(pack)) {
        rows.insert(row);
        sum += lengths[static_cast<size_t>(row)];
      }
      EXPECT_LE(sum, 128);
      EXPECT_EQ(packed.tokens(pack), sum);
      EXPECT_EQ(packed.rows_in(pack), static_cast<int64_t>(packed.rows_of(pack).size()));
      tokens += sum;
    }
    EXPECT_EQ(rows.size(), 3000u);
    EXPECT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), 3000u);
    EXPECT_EQ(packed.report().tokens, tokens);
    EXPECT_EQ(packed.report().capacity, 128 * packed.size());
  }
}

TEST(Packing, PacksAreNearlyFull) {
  const Values lengths = uneven_lengths(3000, 128);
  EXPECT_GT(PackedDataset(make_texts(lengths), {.packing_length = 256}).report().efficiency(), 0.995);
  EXPECT_GT(PackedDataset(make_texts(lengths), {.packing_length = 256, .window = 200}).report().efficiency(),
            0.97);
  const PackedDataset single(make_texts(lengths), {.packing_length = 256, .window = 1});
  EXPECT_EQ(single.size(), 3000) << "a window of one row has nothing to join";
}

TEST(Packing, NoTwoPacksOfAWindowCouldBeOne) {
  const PackedDataset packed(make_texts(uneven_lengths(500, 90)), {.packing_length = 100});
  Values tokens;
  for (int64_t pack = 0; pack < packed.size(); ++pack) tokens.push_back(packed.tokens(pack));
  std::sort(tokens.begin(), tokens.end());
  EXPECT_GT(tokens[0] + tokens[1], 100);
}

TEST(Packing, IsAFunctionOfLengthsAndOptionsAlone) {
  const Values lengths = uneven_lengths(400, 60);
  const auto packs = packs_of(PackedDataset(make_texts(lengths), {.packing_length = 64}));
  EXPECT_EQ(packs_of(PackedDataset(make_texts(lengths, "another"), {.packing_length = 64})), packs);
  std::vector<SftRow> rows;
  for (const int64_t length : lengths) {
    const std::vector<int32_t> ids(static_cast<size_t>(length), 3);
    rows.push_back({.input_ids = ids, .labels = ids});
  }
  EXPECT_EQ(packs_of(PackedDataset(std::make_shared<SftDataset>(std::move(rows)), {.packing_length = 64})),
            packs);
  EXPECT_NE(packs_of(PackedDataset(make_texts(lengths), {.packing_length = 64, .seed = 43})), packs);
  EXPECT_NE(packs_of(PackedDataset(make_texts(lengths), {.packing_length = 65})), packs);
}

TEST(Packing, WithoutShuffleNeighboursStayTogether) {
  const PackedDataset packed(make_texts(Values(12, 3)), {.packing_length = 6, .shuffle = false, .window = 4});
  EXPECT_EQ(packs_of(packed), (std::vector<Values>{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}));
  const PackedDataset shuffled(make_texts(Values(12, 3)), {.packing_length = 6, .window = 4});
  EXPECT_NE(packs_of(shuffled), packs_of(packed));
}

TEST(Packing, APairCountsWithBothItsSequences) {
  // 3 + 2 + 3 + 1 = 9 tokens, 1 + 1 + 1 + 2 = 5, 1 + 3 + 1 + 1 = 6
  auto pairs =
      std::make_shared<DpoDataset>(std::vector{make_pair(3, 2, 1), make_pair(1, 1, 2), make_pair(1, 3, 1)});
  const PackedDataset packed(pairs, {.packing_length = 11, .shuffle = false});
  EXPECT_EQ(packs_of(packed), (std::vector<Values>{{0}, {1, 2}}));
  const Batch batch = packed.collate(Values{1}, {.layout = BatchLayout::kPacked});
  EXPECT_EQ(batch.pairs, 2);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.layout->lengths, (Values{2, 4, 3, 2}));
}

TEST(Packing, APairLongerThanAPackStandsAlone) {
  auto pairs =
      std::make_shared<DpoDataset>(std::vector{make_pair(4, 2, 2), make_pair(1, 1, 1), make_pair(1, 1, 1)});
  const PackedDataset packed(pairs, {.packing_length = 8, .max_length = 8, .shuffle = false});
  EXPECT_EQ(packs_of(packed), (std::vector<Values>{{0}, {1, 2}}));
  EXPECT_EQ(packed.report().oversized, 1);
  EXPECT_EQ(packed.report().capacity, 12 + 8);
  EXPECT_EQ(packed.report().efficiency(), 1.0);
  EXPECT_NE(packed.origin().note.find("1 longer rows"), std::string::npos) << packed.origin().note;
}

TEST(Packing, MakesTheBatchThatItsRowsMakeAlone) {
  const auto texts = make_texts(Values{6, 5, 4, 3, 2});
  const PackedDataset packed(texts, {.packing_length = 10, .shuffle = false});
  for (const BatchLayout layout : {BatchLayout::kPacked, BatchLayout::kPadded}) {
    const Batch found = packed.collate(Values{1, 0}, {.layout = layout});
    const Batch wanted = texts->collate(Values{1, 3, 4, 0, 2}, {.layout = layout});
    EXPECT_EQ(found.ordinals, (Values{1, 3, 4, 0, 2}));
    EXPECT_EQ(found.rows, 5);
    EXPECT_EQ(found.layout->lengths, wanted.layout->lengths);
    EXPECT_EQ(values_of(found.tokens_T), values_of(wanted.tokens_T));
    EXPECT_EQ(values_of(found.target_rows_M), values_of(wanted.target_rows_M));
  }
  EXPECT_TRUE(packed.collate({}, {}).is_empty());
}

TEST(Packing, APackIsPlacedAtItsFirstRowAndCostsWhatItsRowsCost) {
  const PackedDataset packed(make_texts(Values{6, 5, 4, 3, 2}), {.packing_length = 10, .shuffle = false});
  EXPECT_EQ(packed.place_text(1), "a.jsonl:2");
  EXPECT_EQ(packed.squared_tokens(0), 36 + 16);
  EXPECT_EQ(packed.squared_tokens(1), 25 + 9 + 4);
  EXPECT_THROW(packed.rows_of(2), ShapeError);
  EXPECT_THROW(packed.tokens(-1), ShapeError);
  EXPECT_THROW(packed.place(2), ShapeError);
}

TEST(Packing, TheFingerprintCoversRowsAndOptions) {
  const Values lengths = {6, 5, 4};
  const PackingOptions plain{.packing_length = 10};
  std::set<std::string> fingerprints = {"f0"};
  const auto add = [&](const std::string& rows, PackingOptions options) {
    fingerprints.insert(PackedDataset(make_texts(lengths, rows), options).origin().fingerprint);
  };
  add("f0", plain);
  add("f1", plain);
  add("f0", {.packing_length = 11});
  add("f0", {.packing_length = 10, .seed = 1});
  add("f0", {.packing_length = 10, .shuffle = false});
  add("f0", {.packing_length = 10, .window = 2});
  EXPECT_EQ(fingerprints.size(), 7u);
  add("f0", plain);
  EXPECT_EQ(fingerprints.size(), 7u);
}

TEST(Packing, SaysHowFullThePacksAre) {
  const PackedDataset packed(make_texts(Values{6, 5, 4}), {.packing_length = 10, .shuffle = false});
  EXPECT_EQ(packed.origin().note, "packed 3 rows into 2 packs of 10 tokens, 75.0 % full");
  EXPECT_EQ(packed.origin().files, (std::vector<std::string>{"a.jsonl"}));
}

TEST(Packing, SomeOfThePacksAreADatasetToo) {
  const auto packed = std::make_shared<PackedDataset>(make_texts(Values{6, 5, 4, 3, 2}),
                                                      PackingOptions{.packing_length = 10, .shuffle = false});
  const SubsetDataset subset(packed, {1});
  EXPECT_EQ(subset.rows_in(0), 3);
  EXPECT_EQ(subset.squared_tokens(0), packed->squared_tokens(1));
  const Batch batch = subset.collate(Values{0}, {});
  EXPECT_EQ(batch.rows, 3);
  EXPECT_EQ(batch.ordinals, (Values{1, 3, 4})) << "one for each row";
}

TEST(Packing, NoRowsMakeNoPacks) {
  const PackedDataset packed(make_texts({}), {.packing_length = 10});
  EXPECT_EQ(packed.size(), 0);
  EXPECT_EQ(packed.report().efficiency(), 1.0);
}

TEST(Packing, RefusesOptionsThatDoNotFit) {
  const auto texts = make_texts(Values{6, 5});
  const auto refused = [&](PackingOptions options) {
    return message_of<ConfigError>([&] { PackedDataset(texts, options); });
  };
  EXPECT_NE(refused({.packing_length = 0}).find("packing_length is 0"), std::string::npos);
  EXPECT_NE(refused({.packing_length = 8, .max_length = 9}).find("raise --packing_length"),
            std::string::npos);
  EXPECT_NE(refused({.packing_length = 8, .max_length = -1}).find("max_length is -1"), std::string::npos);
  EXPECT_NE(refused({.packing_length = 8, .window = 0}).find("window is 0"), std::string::npos);
}

TEST(Packing, EveryRowKeepsItsChannel) {
  std::vector<SftRow> rows;
  for (const char* channel : {"a", "b", "", "a"})
    rows.push_back({.input_ids = {1, 2}, .labels = {1, 2}, .channel = channel});
  const auto texts = std::make_shared<SftDataset>(std::move(rows));
  EXPECT_EQ(texts->origin().channels, (std::vector<std::string>{"a", "b"}));
  const auto packed =
      std::make_shared<PackedDataset>(texts, PackingOptions{.packing_length = 4, .shuffle = false});
  EXPECT_EQ(packed->origin().channels, texts->origin().channels);
  ASSERT_EQ(packed->size(), 2);
  const Batch batch = packed->collate(Values{0, 1}, {.layout = BatchLayout::kPacked});
  std::vector<std::string> wanted;
  for (const int64_t ordinal : batch.ordinals) wanted.push_back(texts->row(ordinal).channel);
  EXPECT_EQ(batch.channels, wanted);
  const DatasetSplit split = split_dataset(packed, {.ratio = 0.5});
  EXPECT_EQ(split.train->origin().channels, texts->origin().channels);
}

}  // namespace
}  // namespace apus::data
