#include "apus/train/run_report.h"

#include <gtest/gtest.h>

#include <sstream>

#include "apus/base/error.h"

namespace apus::train {
namespace {

RunReport example() {
  return {.steps = 1500,
          .max_steps = 1500,
          .epochs = 3.0,
          .first_loss = ReportedValue{.value = 0.6931, .step = 5},
          .last_loss = ReportedValue{.value = 0.1234, .step = 1500},
          .best = ReportedValue{.value = 0.2, .step = 1000},
          .last_evaluation = ReportedValue{.value = 0.25, .step = 1500},
          .seconds = 3725,
          .tokens = 1'234'567,
          .ranks = 4,
          .memory_bytes = int64_t{3} << 29,
          .rows = {{.name = "training",
                    .input = 2000,
                    .whole = 1900,
                    .truncated = 20,
                    .held_out = 40,
                    .dropped = {{"too long", 35}, {"empty chosen", 5}}}},
          .places = {{"adapter", "out/v0/checkpoint-1500"}, {"log", "out/v0/logging.jsonl"}},
          .next = "apus merge --adapters out/v0/checkpoint-1500"};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(RunReport, SaysEverythingInAlignedColumns) {
  EXPECT_EQ(closing_table(example()),
            "Training finished\n"
            "  steps          1,500 of 1,500, 3.00 epochs\n"
            "  loss           first 0.6931 (step 5), last 0.1234 (step 1,500)\n"
            "  evaluation     best eval_loss 0.2000 (step 1,000), last 0.2500 (step 1,500)\n"
            "  time           1h 2m 5s\n"
            "  speed          331.4 tokens/s, 82.9 a rank, 1,234,567 tokens\n"
            "  memory         1.50 GiB at most on a rank\n"
            "  training rows  2,000 read = 1,920 used (20 of them truncated) + 40 held out for evaluation + "
            "40 dropped\n"
            "                 dropped: 35 too long\n"
            "                 dropped: 5 empty chosen\n"
            "  adapter        out/v0/checkpoint-1500\n"
            "  log            out/v0/logging.jsonl\n"
            "Next: apus merge --adapters out/v0/checkpoint-1500");
}

TEST(RunReport, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(closing_table({.steps = 2, .max_steps = 2, .epochs = 0.5, .seconds = 1}),
            "Training finished\n"
            "  steps  2 of 2, 0.50 epochs\n"
            "  time   1s");
}

TEST(RunReport, SaysThatAStoppedRunCanGoOn) {
  const std::string text = closing_table({.steps = 1, .max_steps = 2, .finished = false});
  EXPECT_TRUE(text.starts_with("Training stopped; the same command resumes it\n")) << text;
}

TEST(RunReport, RefusesRowsThatDoNotAddUp) {
  RunReport report = example();
  EXPECT_TRUE(rows_add_up(report.rows[0]));
  ++report.rows[0].input;
  EXPECT_FALSE(rows_add_up(report.rows[0]));
  EXPECT_THROW(closing_table(report), Error);
}

TEST(RunReport, BreaksLinesAtCommasWhereTheTerminalIsNarrow) {
  const std::vector<std::string> lines = lines_of(closing_table(example(), {.width = 60}));
  for (const std::string& line : lines) {
    EXPECT_TRUE(line.find(", ") == line.npos || line.size() <= 60) << line;
  }
  EXPECT_EQ(lines[4], "  evaluation     best eval_loss 0.2000 (step 1,000),");
  EXPECT_EQ(lines[5], "                 last 0.2500 (step 1,500)");
}

TEST(RunReport, NeverBreaksPathsAndCommands) {
  const std::string text = closing_table(example(), {.width = 30});
  EXPECT_NE(text.find("out/v0/checkpoint-1500\n"), text.npos);
  EXPECT_NE(text.find("Next: apus merge --adapters out/v0/checkpoint-1500"), text.npos);
}

TEST(RunReport, ShowsTheCurveBelowTheLoss) {
  RunReport report = example();
  report.loss_curve = "#*+=-:._";
  const std::vector<std::string> lines = lines_of(closing_table(report));
  EXPECT_EQ(lines[3], "                 #*+=-:._");
}

TEST(RunReport, QuotesAPathForTheShell) {
  EXPECT_EQ(merge_command("out/v0/checkpoint-5"), "apus merge --adapters out/v0/checkpoint-5");
  EXPECT_EQ(merge_command("my out/it's"), "apus merge --adapters 'my out/it'\\''s'");
  EXPECT_EQ(merge_command("$(rm)"), "apus merge --adapters '$(rm)'");
  EXPECT_EQ(load_hint("out/v0/merges"),
            "load out/v0/merges with transformers or vLLM, or train on with --model out/v0/merges");
  EXPECT_TRUE(load_hint("my out").ends_with("--model 'my out'"));
}

TEST(RunReport, SaysHowManyStepsChangedNothing) {
  RunReport report{.steps = 4, .max_steps = 4};
  EXPECT_EQ(closing_table(report).find("skipped"), std::string::npos);
  report.skipped = 1;
  EXPECT_NE(closing_table(report).find("1 steps whose gradients left fp16's range"), std::string::npos);
  report.skipped = 4;
  EXPECT_NE(closing_table(report).find("all steps whose gradients left fp16's range: NOTHING was learnt"),
            std::string::npos);
}

}  // namespace
}  // namespace apus::train
