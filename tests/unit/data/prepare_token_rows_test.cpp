#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/data/prepare.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using PrepareTokenRows = RowsTest;

std::shared_ptr<const SftDataset> prepared(const TokenRowsPrepareOptions& options) {
  NullLogger logger;
  return prepare_token_rows(options, logger);
}

TEST_F(PrepareTokenRows, ReadsIdsAndLabels) {
  const auto dataset = prepared(
      {.read = {.files = {write("a.jsonl", R"({"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "text": "x"})"
                                           "\n\n"
                                           R"({"labels": [4, 5], "input_ids": [4, 5]})")}}});
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->row(0).input_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(dataset->row(0).labels, (std::vector<int32_t>{kIgnoredLabel, 2, 3}));
  EXPECT_EQ(dataset->row(1).place, (RowPlace{0, 3}));
  EXPECT_EQ(dataset->origin().report.summary(), "rows: 2 read = 2 trained whole + 0 truncated + 0 dropped");
}

TEST_F(PrepareTokenRows, KeepsChannelsAndTheirNames) {
  const std::string path = write("a.jsonl", R"({"input_ids": [1, 2], "labels": [1, 2], "channel": "maths"})"
                                            "\n"
                                            R"({"input_ids": [1, 2], "labels": [1, 2]})"
                                            "\n"
                                            R"({"input_ids": [1, 2], "labels": [1, 2], "channel": 7})"
                                            "\n"
                                            R"({"input_ids": [1, 2], "labels": [1, 2], "channel": ["x"]})");
  TokenRowsPrepareOptions options{.read = {.files = {path}, .cache_folder = folder() / "cache"}};
  for (const char* which : {"prepared", "from the cache"}) {
    const auto dataset = prepared(options);
    ASSERT_EQ(dataset->size(), 3) << which;
    EXPECT_EQ(dataset->row(0).channel, "maths") << which;
    EXPECT_EQ(dataset->row(1).channel, "") << which;
    EXPECT_EQ(dataset->row(2).channel, "7") << which;
    EXPECT_EQ(dataset->origin().channels, (std::vector<std::string>{"7", "maths"})) << which;
    EXPECT_EQ(dataset->origin().rows_read, (std::vector<int64_t>{4})) << which;
    EXPECT_EQ(dataset->origin().report.counts_by_code(),
              (std::map<std::string, int64_t>{{"bad_channel", 1}}));
  }
}

TEST_F(PrepareTokenRows, GivesTheReasonOfEachBadRow) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "broken JSON: column 2"},
      {"[]", "wrong type: the row is array, expected an object"},
      {R"({"labels": [1]})", "missing key 'input_ids': has: labels"},
      {R"({"input_ids": [1, 2], "labels": null})", "key 'labels' is null: has: input_ids, labels"},
      {R"({"input_ids": "x", "labels": [1]})",
       "wrong type: input_ids is string, expected a list of whole numbers"},
      {R"({"input_ids": [1, 2.5], "labels": [1, 2]})",
       "wrong type: input_ids[1] is number, expected a whole number"},
      {R"({"input_ids": [1, 90], "labels": [1, 2]})",
       "token outside the vocabulary: input_ids[1] is 90, expected 0 to 89"},
      {R"({"input_ids": [-100, 1], "labels": [1, 2]})",
       "token outside the vocabulary: input_ids[0] is -100, expected 0 to 89"},
      {R"({"input_ids": [1, 2], "labels": [1, -1]})",
       "token outside the vocabulary: labels[1] is -1, expected 0 to 89 or -100"},
      {R"({"input_ids": [1, 18446744073709551615], "labels": [1, 1]})",
       "token outside the vocabulary: input_ids[1] is 18446744073709551615, expected 0 to 89"},
      {R"({"input_ids": [1, 2], "labels": [1]})", "different lengths: 2 input_ids, 1 labels"},
      {R"({"input_ids": [], "labels": []})", "empty input_ids"},
      {R"({"input_ids": [1, 2], "labels": [1, -100]})",
       "no trained token left: 2 tokens, all labels are -100"},
      {R"({"input_ids": [1, 2], "labels": [1, 2], "loss_scale": [1, 1]})",
       "not supported yet: rows of tokens with key 'loss_scale'"},
  };
  for (const auto& [line, reason] : cases) {
    const std::string path = write("a.jsonl", R"({"input_ids": [1, 2], "labels": [1, 2]})"
                                              "\n" +
                                                  line);
    const std::string message = message_of<DataError>(
        [&] { prepared({.read = {.files = {path}, .strict = true}, .vocab_size = 90}); });
    EXPECT_TRUE(message.starts_with(path + ":2: " + reason)) << message;
    EXPECT_EQ(prepared({.read = {.files = {path}}, .vocab_size = 90})->origin().report.dropped(), 1) << line;
  }
}

TEST_F(PrepareTokenRows, ObeysMaxLength) {
  TokenRowsPrepareOptions options{
      .read = {.files = {write("a.jsonl", R"({"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, 4]})"
                                          "\n"
                                          R"({"input_ids": [5, 6], "labels": [5, 6]})")},
               .max_length = 3}};
  EXPECT_EQ(prepared(options)->row(0).input_ids.front(), 5);
  options.read.truncation = Truncation::kRight;
  EXPECT_EQ(prepared(options)->row(0).labels, (std::vector<int32_t>{kIgnoredLabel, 2, 3}));
  options.read.truncation = Truncation::kLeft;
  const auto left = prepared(options);
  EXPECT_EQ(left->row(0).input_ids, (std::vector<int32_t>{2, 3, 4}));
  EXPECT_EQ(left->origin().report.truncated(), 1);
}

TEST_F(PrepareTokenRows, TheFingerprintFollowsTheRows) {
  const auto fingerprint = [&](const std::string& text) {
    return prepared({.read = {.files = {write("a.jsonl", text)}}})->origin().fingerprint;
  };
  const std::string first = fingerprint(R"({"input_ids": [1, 2], "labels": [1, 2]})");
  EXPECT_EQ(fingerprint(R"({"input_ids": [1, 2], "labels": [1, 2]})"), first);
  EXPECT_NE(fingerprint(R"({"input_ids": [1, 2], "labels": [-100, 2]})"), first);
  EXPECT_THROW(prepared({.read = {.files = {"x"}}, .vocab_size = 0}), ConfigError);
}

}  // namespace
}  // namespace apus::data
