#include "data/prepare_rows.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/log.h"
#include "apus/data/tokenizer_config.h"
#include "tests/unit/data/support/packed.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

namespace fs = std::filesystem;
using PrepareRows = RowsTest;

/// A row of text: as many tokens as letters; "bad" is refused, "long" is cut.
EncodedRow<SftRow> encode_letters(std::string_view text) {
  if (text == "bad") throw RowRefused({"bad row", "it says so", "bad"});
  EncodedRow<SftRow> encoded;
  for (const char c : text) encoded.row.input_ids.push_back(c);
  encoded.row.labels = encoded.row.input_ids;
  encoded.truncated = text == "long";
  return encoded;
}

RowsPlan<SftRow> plan_of(std::atomic<int>& encoded) {
  return {.encode =
              [&](std::string_view text) {
                ++encoded;
                return encode_letters(text);
              },
          .note = [](std::string_view first) { return "the first is " + std::string(first); },
          .options = {{"letters", true}}};
}

/// The lines of a log about rows, without those that say where the rows lie.
std::vector<std::string> lines_about_rows(const CaptureLogger& logger) {
  std::vector<std::string> lines;
  for (const auto& [level, line] : logger.lines())
    if (!line.starts_with("prepared rows")) lines.push_back(line);
  return lines;
}

struct Run {
  PreparedRows<SftRow> rows;
  int encoded = 0;
  std::vector<std::string> lines;
  CaptureLogger logger;
};

std::unique_ptr<Run> run(const RowReadOptions& options, int64_t workers = 2) {
  auto result = std::make_unique<Run>();
  std::atomic<int> encoded = 0;
  RowsPlan<SftRow> plan = plan_of(encoded);
  plan.workers = workers;
  result->rows = prepare_rows(options, plan, result->logger);
  result->encoded = encoded;
  result->lines = lines_about_rows(result->logger);
  return result;
}

TEST_F(PrepareRows, TheSecondRunTakesTheRowsFromTheCacheAndSaysTheSame) {
  const RowReadOptions options{
      .files = {write("a.jsonl", "one\nbad\nlong\n"), write("b.jsonl", "x\nbad\n") + "#9"},
      .cache_folder = folder() / "cache"};
  const auto first = run(options);
  const auto second = run(options);
  EXPECT_EQ(first->encoded, 5);
  EXPECT_EQ(second->encoded, 0);
  ASSERT_EQ(second->rows.table->size(), 3);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(second->rows.table->row(i).input_ids, first->rows.table->row(i).input_ids);
    EXPECT_EQ(second->rows.table->place(i), first->rows.table->place(i));
  }
  EXPECT_EQ(second->rows.table->place(2), (RowPlace{1, 1}));
  EXPECT_EQ(second->lines, first->lines);
  EXPECT_EQ(second->rows.origin.fingerprint, first->rows.origin.fingerprint);
  EXPECT_EQ(second->rows.origin.note, "the first is one");
  EXPECT_EQ(second->rows.origin.report.truncated(), 1);
  EXPECT_EQ(second->rows.origin.report.reasons().at("bad row").code, "bad");
  EXPECT_TRUE(first->logger.contains("prepared rows are kept in "));
  EXPECT_FALSE(first->logger.contains("(0 MiB)")) << "a small file has a size, too";
  EXPECT_TRUE(second->logger.contains("prepared rows come from the cache: "));
  EXPECT_TRUE(second->logger.contains("a.jsonl:2: bad row: it says so"));
  EXPECT_TRUE(second->logger.contains("b.jsonl#9: the file has only 2 rows"));
  const auto part = second->rows.origin.report.part(std::vector<int64_t>{1});
  EXPECT_EQ(part.truncated(), 1) << "which row was cut is known";
}

TEST_F(PrepareRows, TheRowsAreTheSameWithoutACacheAndWithAnyNumberOfThreads) {
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += i % 7 == 3 ? "bad\n" : "row " + std::to_string(i) + std::string(i % 300, 'x') + "\n";
  RowReadOptions options{.files = {write("a.jsonl", text)}};
  const auto one = run(options, 1);
  options.cache_folder = folder() / "cache";
  const auto many = run(options, 5);
  EXPECT_EQ(one->encoded, many->encoded);
  EXPECT_EQ(one->lines, many->lines);
  EXPECT_EQ(one->rows.origin.fingerprint, many->rows.origin.fingerprint);
  ASSERT_EQ(one->rows.table->size(), many->rows.table->size());
  for (int64_t i = 0; i < one->rows.table->size(); i += 97)
    EXPECT_EQ(one->rows.table->row(i).input_ids, many->rows.table->row(i).input_ids);
}

TEST_F(PrepareRows, AFileMayMoveAndIsNamedAsItIsNow) {
  RowReadOptions options{.files = {write("a.jsonl", "one\nbad\n")}, .cache_folder = folder() / "cache"};
  run(options);
  fs::rename(folder() / "a.jsonl", folder() / "moved.jsonl");
  options.files = {(folder() / "moved.jsonl").string()};
  const auto again = run(options);
  EXPECT_EQ(again->encoded, 0);
  EXPECT_TRUE(again->logger.contains("moved.jsonl:2: bad row"));
  EXPECT_FALSE(again->logger.contains("a.jsonl"));
}

TEST_F(PrepareRows, WhateverDecidesAboutTheRowsMissesTheCache) {
  const std::string path = write("a.jsonl", "one\ntwo\nthree\n");
  const RowReadOptions base{.files = {path}, .cache_folder = folder() / "cache"};
  std::vector<RowReadOptions> others(4, base);
  others[0].files = {path + "#2"};
  others[1].files = {write("b.jsonl", "one\ntwo\nthrew\n")};
  others[2].files = {path, path};
  others[3].strict = true;
  EXPECT_GT(run(base)->encoded, 0);
  for (const RowReadOptions& other : others) {
    EXPECT_GT(run(other)->encoded, 0);
    EXPECT_EQ(run(other)->encoded, 0);
  }
  EXPECT_EQ(run(base)->encoded, 0) << "each has its own entry";
  for (const nlohmann::json& options : {nlohmann::json{{"letters", false}}, nlohmann::json()}) {
    std::atomic<int> encoded = 0;
    RowsPlan<SftRow> plan = plan_of(encoded);
    plan.options = options;
    CaptureLogger logger;
    prepare_rows(base, plan, logger);
    EXPECT_EQ(encoded, 3);
  }
  std::atomic<int> encoded = 0;
  RowsPlan<SftRow> plan = plan_of(encoded);
  plan.key_only = {{"tokenizer", 1}};
  NullLogger logger;
  prepare_rows(base, plan, logger);
  EXPECT_EQ(encoded, 3);
}

TEST_F(PrepareRows, PackedFilesAndArraysGiveTheSameRows) {
  const std::string lines = "{\"a\": 1}\n{\"b\": [2]}\n", array = "[{\"a\": 1},\n{\"b\": [2]}]";
  const auto plain = run({.files = {write("a.jsonl", lines)}});
  for (const std::string& bytes :
       {gzipped(lines), zstd_packed(lines), array, gzipped(array), zstd_packed(array)}) {
    const auto other = run({.files = {write("b", bytes)}});
    ASSERT_EQ(other->rows.table->size(), 2);
    EXPECT_EQ(other->rows.table->row(1).input_ids, plain->rows.table->row(1).input_ids);
    EXPECT_EQ(other->rows.table->place(1), (RowPlace{0, 2}));
    EXPECT_EQ(other->rows.origin.fingerprint, plain->rows.origin.fingerprint);
  }
}

TEST_F(PrepareRows, ADamagedEntryIsPreparedAnew) {
  const RowReadOptions options{.files = {write("a.jsonl", "one\ntwo\n")}, .cache_folder = folder() / "cache"};
  run(options);
  fs::path entry;
  for (const auto& each : fs::directory_iterator(folder() / "cache" / "rows")) entry = each.path();
  std::string bytes = read_file(entry);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(entry, std::ios::binary) << bytes;
  const auto again = run(options);
  EXPECT_EQ(again->encoded, 2);
  EXPECT_EQ(again->logger.count("cached rows cannot be used and are prepared anew: " + entry.string()), 1);
  EXPECT_EQ(run(options)->encoded, 0);
}

TEST_F(PrepareRows, AFolderThatCannotBeUsedIsAWarning) {
  write("no_folder", "");
  const auto rows = run({.files = {write("a.jsonl", "one\n")}, .cache_folder = folder() / "no_folder"});
  EXPECT_EQ(rows->rows.table->size(), 1);
  EXPECT_EQ(rows->logger.count("rows are not cached: cannot create directory"), 1);
}

TEST_F(PrepareRows, SomeRowsAreNotForTheCache) {
  std::atomic<int> encoded = 0;
  RowsPlan<SftRow> plan = plan_of(encoded);
  plan.not_cached = "they change by the minute";
  const RowReadOptions options{.files = {write("a.jsonl", "one\n")}, .cache_folder = folder() / "cache"};
  CaptureLogger logger;
  for (int i = 0; i < 2; ++i) prepare_rows(options, plan, logger);
  EXPECT_EQ(encoded, 2);
  EXPECT_EQ(logger.count("rows are not taken from or put into the cache: they change by the minute"), 2);
  EXPECT_FALSE(fs::exists(folder() / "cache"));
}

TEST_F(PrepareRows, RanksOfAHostShareOnePreparation) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "row " + std::to_string(i) + "\n";
  const RowReadOptions options{.files = {write("a.jsonl", text)}, .cache_folder = folder() / "cache"};
  std::atomic<int> encoded = 0, rows = 0;
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&] {
        NullLogger logger;
        RowsPlan<SftRow> plan = plan_of(encoded);
        rows += static_cast<int>(prepare_rows(options, plan, logger).table->size());
      });
  }
  EXPECT_EQ(encoded, 2000);
  EXPECT_EQ(rows, 8000);
}

TEST_F(PrepareRows, AKilledPreparerLeavesNothingBroken) {
  const RowReadOptions options{.files = {write("a.jsonl", "one\ntwo\n")}, .cache_folder = folder() / "cache"};
  const pid_t child = ::fork();
  if (child == 0) {
    RowsPlan<SftRow> plan{.encode = [](std::string_view) -> EncodedRow<SftRow> {
                            ::_exit(7);  // in the middle of the work, with the lock held
                          },
                          .note = [](std::string_view) { return ""; },
                          .options = {{"letters", true}}};
    NullLogger logger;
    prepare_rows(options, plan, logger);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 7);
  EXPECT_FALSE(fs::is_empty(folder() / "cache" / "rows")) << "its lock and half a file lie there";
  const auto rows = run(options);
  EXPECT_EQ(rows->encoded, 2);
  int entries = 0;
  for (const auto& each : fs::directory_iterator(folder() / "cache" / "rows")) {
    EXPECT_EQ(each.path().extension(), ".rows");
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

TEST_F(PrepareRows, AnErrorLeavesNoEntryAndNoLock) {
  const RowReadOptions options{
      .files = {write("a.jsonl", "one\nbad\n")}, .strict = true, .cache_folder = folder() / "cache"};
  EXPECT_EQ(message_of<DataError>([&] { run(options); }), options.files[0] + ":2: bad row: it says so");
  EXPECT_TRUE(fs::is_empty(folder() / "cache" / "rows"));
}

TEST_F(PrepareRows, TheFirstErrorInTheFilesIsThrownThoughALaterOneIsReadBefore) {
  std::string text = "one\n";
  for (int i = 0; i < 50000; ++i) text += "row " + std::to_string(i * 7919) + "\n";
  std::string packed = gzipped("one\nbad\n" + text);
  packed.resize(packed.size() / 2);
  const std::string path = write("a.gz", packed);
  EXPECT_EQ(message_of<DataError>([&] { run({.files = {path}, .strict = true}); }),
            path + ":2: bad row: it says so");
  EXPECT_NE(message_of<DataError>([&] { run({.files = {path}}); }).find("ends early"), std::string::npos);
}

TEST_F(PrepareRows, SaysHowFarItHasCome) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += std::string(1 << 14, 'x') + "\n";
  ManualClock clock;
  const RowReadOptions options{.files = {write("a.jsonl", text)}, .clock = &clock};
  std::atomic<int> encoded = 0;
  RowsPlan<SftRow> plan = plan_of(encoded);
  plan.encode = [&](std::string_view row) {
    clock.advance(std::chrono::seconds(1));
    return encode_letters(row);
  };
  CaptureLogger logger;
  prepare_rows(options, plan, logger);
  EXPECT_GE(logger.count("preparing rows: "), 1);
  EXPECT_LE(logger.count("preparing rows: "), 3);
  EXPECT_TRUE(logger.contains(" % of the files read, "));
}

TEST_F(PrepareRows, ARowThatIsTooLongIsCounted) {
  std::string packed = gzipped("one\n");
  const std::string mebibyte = gzipped(std::string(size_t{1} << 20, 'x'));
  for (int i = 0; i < 65; ++i) packed += mebibyte;
  const std::string path = write("a.gz", packed + gzipped("\ntwo\n"));
  const auto rows = run({.files = {path}});
  EXPECT_EQ(rows->rows.table->size(), 2);
  EXPECT_TRUE(rows->logger.contains(path + ":2: row of more than 64 MiB"));
}

}  // namespace
}  // namespace apus::data
