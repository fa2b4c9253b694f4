#include "cli/data_text.h"

#include <gtest/gtest.h>

namespace apus::cli {
namespace {

train::DataLook some_look() {
  train::DataLook look{.task = data::DataTask::kChat, .max_length = 2048};
  look.train.files = {{.file = "a.jsonl", .read = 1200, .whole = 1000, .truncated = 150, .dropped = 50}};
  const std::vector<data::RowLengths> rows = {{4, 0, 2}, {4, 0, 1}, {16, 0, 4}};
  look.train.lengths = data::summarize_lengths(rows);
  look.train.samples = {{"a.jsonl:3", {{"text", {{0, 3, "ask"}, {1, 2, "say"}, {0.5f, 1, "!"}}}}}};
  look.world = 2;
  look.micro_batch_rows = 3;
  look.accumulation = 4;
  look.total_steps = 30;
  look.batches = {.rows = 240,
                  .steps = 10,
                  .micro_batches = 80,
                  .tokens = 750,
                  .padded_tokens = 1000,
                  .largest_padded = 90,
                  .largest = 60};
  return look;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), text.npos) << part << "\nin\n" << text;
}

TEST(DataText, ShowsCountsByFile) {
  const std::string text = data_text(some_look());
  expect_part(text, "Task: sft; max_length: 2,048\n");
  expect_part(text, "  file          read      whole  truncated    dropped\n");
  expect_part(text, "  a.jsonl      1,200      1,000        150         50\n");
  EXPECT_EQ(text.find("  all "), text.npos) << "one file is all";
}

TEST(DataText, ShowsDroppedRowsWithTheirPlaces) {
  train::DataLook look = some_look();
  look.train.files.push_back({.file = "b.jsonl"});
  look.train.report.add_dropped("a.jsonl", 7, {.kind = "empty chosen", .detail = "bad \x1b[2J"});
  const std::string text = data_text(look);
  expect_part(text, "  all ");
  expect_part(text, "a.jsonl:7: empty chosen: bad \\x1b[2J\n");
}

TEST(DataText, DrawsALengthHistogram) {
  const std::string text = data_text(some_look());
  expect_part(text, "24 tokens in 3 sequences; 7 of them trained (29.2 %)\n");
  expect_part(text, "shortest 4, mean 8.0, longest 16; 50 % up to 4; 75 % up to 16");
  expect_part(text, "   4 to 4   |" + std::string(50, '#') + "          2\n");
  expect_part(text, "  16 to 16  |" + std::string(25, '#') + std::string(25, ' ') + "          1\n");
}

TEST(DataText, MasksAreRunsOfIgnoredLabels) {
  const std::string text = data_text(some_look());
  expect_part(text, "--- a.jsonl:3\ninput: asksay!\nlabels: [-100 * 3]say[weight 0.5]!\n");
}

TEST(DataText, ColoursAreForTerminals) {
  const std::string text = data_text(some_look(), {.colours = true});
  expect_part(text, "input: \x1b[2mask\x1b[0m\x1b[32msay\x1b[0m");
  EXPECT_EQ(data_text(some_look()).find('\x1b'), std::string::npos);
}

TEST(DataText, LongPartsAreCutBetweenCharacters) {
  train::DataLook look = some_look();
  look.train.samples = {{"a.jsonl:3", {{"chosen", {{1, 9, "aa\xC3\xA9zzz"}}}}}};
  expect_part(data_text(look, {.max_part_bytes = 3}),
              "--- a.jsonl:3, chosen\ninput: aa [... 5 more bytes]\n");
}

TEST(DataText, SaysWhatAStepIs) {
  const std::string text = data_text(some_look());
  expect_part(text, "  a step: 3 rows x 4 micro-batches x 2 ranks = 24 rows\n");
  expect_part(text, "  an epoch: 240 rows, 10 steps, 750 tokens; the run: 30 steps\n");
  expect_part(text, "  padding: 25.0 % of 1,000 tokens an epoch (--padding_free true has none)");
}

TEST(DataText, OneIsNotSeveral) {
  train::DataLook look = some_look();
  look.world = look.micro_batch_rows = look.accumulation = look.total_steps = 1;
  look.batches.rows = look.batches.steps = look.batches.tokens = 1;
  const std::string text = data_text(look);
  expect_part(text, "  a step: 1 row x 1 micro-batch x 1 rank = 1 row\n");
  expect_part(text, "  an epoch: 1 row, 1 step, 1 token; the run: 1 step\n");
}

TEST(DataText, HeldOutRowsHaveAColumn) {
  train::DataLook look = some_look();
  data::RowReport all;
  for (int i = 0; i < 3; ++i) all.add_whole();
  look.train.report = all.part(std::vector<int64_t>{0, 2});
  look.train.files = {{.file = "a.jsonl", .read = 3, .whole = 2, .held_out = 1}};
  const std::string text = data_text(look);
  expect_part(text, "  file          read      whole  truncated   held out    dropped\n");
  expect_part(text, "  a.jsonl          3          2          0          1          0\n");
}

TEST(DataText, WithoutAUsableRowThereAreCountsAlone) {
  train::DataLook look{.task = data::DataTask::kDpo};
  look.train.files = {{.file = "a.jsonl", .read = 2, .dropped = 2}};
  const std::string text = data_text(look);
  expect_part(text, "  a.jsonl          2          0          0          2\n");
  for (const char* part : {"First rows", "tokens in", "Batches"})
    EXPECT_EQ(text.find(part), text.npos) << part;
}

TEST(DataText, PackingTakesThePlaceOfPadding) {
  train::DataLook look = some_look();
  look.packing = {64, {.rows = 100, .packs = 10, .tokens = 480, .oversized = 1, .capacity = 640}};
  look.without_padding = true;
  look.split_rows = 12;
  look.held_out = train::DatasetLook{.flag = "--val_dataset"};
  const std::string text = data_text(look);
  expect_part(text, "packing: 100 rows in 10 packs of 64 tokens, 75.0 % full; 1 row is longer");
  expect_part(text, "a step: 3 packs x 4");
  expect_part(text, "no padding; the largest micro-batch has 60 tokens\n");
  expect_part(text, "12 rows are held out (--split_dataset_ratio)\n");
  expect_part(text, "\n--val_dataset\n");
}

}  // namespace
}  // namespace apus::cli
