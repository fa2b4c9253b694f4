#include "apus/data/streamed_rows.h"

#include <algorithm>

#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/base/memory_usage.h"
#include "tests/unit/data/support/packed.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using StreamedRowsTest = RowsTest;

/// The number in the row as its only token; "bad" is refused, numbers that end in 5 are cut.
EncodedRow<SftRow> encode_number(std::string_view text) {
  if (text == "bad") throw RowRefused({"bad row", {}});
  const int32_t number = std::stoi(std::string(text));
  return {{{number}, {number}}, number % 10 == 5};
}

std::string numbers(int begin, int end) {
  std::string text;
  for (int i = begin; i < end; ++i) text += std::to_string(i) + "\n";
  return text;
}

std::vector<int32_t> all_of(StreamedRows<SftRow>& rows) {
  std::vector<int32_t> out;
  while (const auto row = rows.next()) out.push_back(row->input_ids[0]);
  return out;
}

std::vector<int32_t> streamed(const StreamedRowsOptions& options) {
  StreamedRows<SftRow> rows(options, encode_number);
  return all_of(rows);
}

TEST_F(StreamedRowsTest, KeepsTheOrderOfTheFiles) {
  const StreamedRowsOptions options{
      .read = {.files = {write("a", numbers(0, 3000)), write("b.gz", gzipped(numbers(3000, 4000))) + "#500"}},
      .workers = 3};
  const std::vector<int32_t> out = streamed(options);
  ASSERT_EQ(out.size(), 3500u);
  EXPECT_TRUE(std::ranges::is_sorted(out));
  EXPECT_EQ(out.back(), 3499);
}

TEST_F(StreamedRowsTest, TheShuffledOrderDependsOnSeedEpochAndBufferAlone) {
  StreamedRowsOptions options{.read = {.files = {write("a", numbers(0, 2000))}},
                              .shuffle = {.capacity = 100, .seed = 3}};
  const std::vector<int32_t> first = streamed(options);
  options.workers = 4;
  EXPECT_EQ(streamed(options), first);
  options.shuffle.epoch = 1;
  std::vector<int32_t> second = streamed(options);
  EXPECT_NE(second, first);
  std::ranges::sort(second);
  EXPECT_EQ(second.size(), 2000u);
  EXPECT_EQ(second[1999], 1999);
}

TEST_F(StreamedRowsTest, CountsWhatBecameOfTheRows) {
  const std::string path = write("a", "1\nbad\n5\n2\n");
  StreamedRows<SftRow> rows({.read = {.files = {path}}}, encode_number);
  EXPECT_EQ(all_of(rows), (std::vector<int32_t>{1, 5, 2}));
  EXPECT_EQ(rows.report().summary(), "rows: 4 read = 2 trained whole + 1 truncated + 1 dropped (1 bad row)");
  EXPECT_EQ(rows.report().reasons().at("bad row").examples.at(0), path + ":2: bad row");
  EXPECT_FALSE(rows.next().has_value());
}

TEST_F(StreamedRowsTest, RowsKnowTheirPlaces) {
  StreamedRows<SftRow> rows({.read = {.files = {write("a", "1\n"), write("b", "\n7\n")}}}, encode_number);
  EXPECT_EQ(rows.next()->place, (RowPlace{0, 1}));
  EXPECT_EQ(rows.next()->place, (RowPlace{1, 2}));
}

TEST_F(StreamedRowsTest, StrictThrowsTheFirstBadRow) {
  const std::string path = write("a", numbers(0, 900) + "bad\n" + numbers(0, 5) + "bad\n");
  for (const int64_t workers : {1, 4})
    EXPECT_EQ(message_of<DataError>(
                  [&] { streamed({.read = {.files = {path}, .strict = true}, .workers = workers}); }),
              path + ":901: bad row");
  EXPECT_THROW(streamed({.read = {.files = {path}}, .workers = 0}), ConfigError);
  EXPECT_THROW(streamed({}), ConfigError);
}

TEST_F(StreamedRowsTest, MemoryDoesNotGrowWithTheFile) {
  // 64 MB of rows in a packed file of half a megabyte.
  const std::string megabyte = [] {
    std::string text;
    while (text.size() < (size_t{1} << 20)) text += std::string(1000, 'x') + "\n";
    return text;
  }();
  std::string packed;
  const std::string member = gzipped(megabyte);
  for (int i = 0; i < 64; ++i) packed += member;
  StreamedRows<SftRow> rows(
      {.read = {.files = {write("a.gz", packed)}}, .workers = 2, .shuffle = {.capacity = 200}},
      [](std::string_view text) {
        return EncodedRow<SftRow>{
            {std::vector<int32_t>(text.size(), 1), std::vector<int32_t>(text.size(), 1)}, true};
      });
  ResidentPeak peak;
  const int64_t before = peak.sample();
  int64_t count = 0;
  while (rows.next())
    if (++count % 5000 == 0) peak.sample();
  EXPECT_GT(count, 64'000);
  EXPECT_EQ(rows.report().truncated(), count);
  EXPECT_LT(peak.peak_bytes() - before, int64_t{96} << 20);
}

}  // namespace
}  // namespace apus::data
