#include "apus/data/rows_report.h"

#include <gtest/gtest.h>

namespace apus::data {
namespace {

RowReport sample_report() {
  RowReport report;
  for (int i = 0; i < 7; ++i) report.add_whole();
  report.add_truncated();
  report.add_dropped("a.jsonl", 3, {"empty chosen", ""});
  for (int64_t line = 10; line < 15; ++line)
    report.add_dropped("b.jsonl", line, {"broken JSON", "column " + std::to_string(line)});
  return report;
}

TEST(RowReport, CountsAddUpToTheInput) {
  const RowReport report = sample_report();
  EXPECT_EQ(report.whole(), 7);
  EXPECT_EQ(report.truncated(), 1);
  EXPECT_EQ(report.trained(), 8);
  EXPECT_EQ(report.dropped(), 6);
  EXPECT_EQ(report.input(), report.whole() + report.truncated() + report.dropped());
}

TEST(RowReport, SummaryNamesEveryReasonMostFrequentFirst) {
  EXPECT_EQ(sample_report().summary(),
            "rows: 14 read = 7 trained whole + 1 truncated + 6 dropped (5 broken JSON, 1 empty chosen)");
  EXPECT_EQ(RowReport().summary(), "rows: 0 read = 0 trained whole + 0 truncated + 0 dropped");
}

TEST(RowReport, NamesTheElementOfARowThatStandsInAnArray) {
  RowReport report;
  report.add_dropped("a.json", 1, {.kind = "broken", .detail = "so", .element = 8});
  EXPECT_EQ(report.reasons().at("broken").examples.at(0), "a.json:1 (element 8): broken: so");
  EXPECT_EQ(row_place_text("a.jsonl", 3, 0), "a.jsonl:3");
}

TEST(RowReport, CountsByCodeWhatSeveralKindsShare) {
  RowReport report;
  report.add_dropped("a", 1, {"empty chosen", "", "empty_answer"});
  report.add_dropped("a", 2, {"empty rejected", "", "empty_answer"});
  report.add_dropped("a", 3, {"longer than max_length", "9 tokens", "too_long"});
  report.add_dropped("a", 4, {"of a program of its own", ""});
  EXPECT_EQ(
      report.counts_by_code(),
      (std::map<std::string, int64_t>{{"empty_answer", 2}, {"too_long", 1}, {"of a program of its own", 1}}));
  EXPECT_EQ(report.reasons().at("empty chosen").code, "empty_answer");
  EXPECT_EQ(report.part({}).counts_by_code(), report.counts_by_code());
}

TEST(RowReport, APartCountsItsOwnRowsAndHoldsTheOthersOut) {
  const RowReport whole = sample_report();  // the truncated row is the eighth
  const std::vector<int64_t> kept = {7, 0, 3};
  const std::vector<int64_t> others = {1, 2, 4, 5, 6};
  const RowReport part = whole.part(kept);
  EXPECT_EQ(part.summary(),
            "rows: 14 read = 2 trained whole + 1 truncated + 5 held out + 6 dropped (5 broken JSON, 1 empty "
            "chosen)");
  const RowReport other = whole.part(others);
  EXPECT_EQ(other.truncated(), 0);
  EXPECT_EQ(part.trained() + other.trained() + whole.dropped(), whole.input());
  EXPECT_EQ(part.input(), whole.input());
  const RowReport half = part.part(std::vector<int64_t>{0});  // the truncated row again
  EXPECT_EQ(half.truncated(), 1);
  EXPECT_EQ(half.held_out(), 7);
}

TEST(RowReport, KeepsTheFirstExamplesOfEachReason) {
  const std::vector<std::string> expected = {"5 rows dropped, broken JSON:",
                                             "  b.jsonl:10: broken JSON: column 10",
                                             "  b.jsonl:11: broken JSON: column 11",
                                             "  b.jsonl:12: broken JSON: column 12",
                                             "  and 2 more",
                                             "1 row dropped, empty chosen:",
                                             "  a.jsonl:3: empty chosen"};
  EXPECT_EQ(sample_report().details(), expected);
  EXPECT_TRUE(RowReport().details().empty());
}

TEST(RowReport, ARefusalCarriesItsMessage) {
  const RowRefused refused({"wrong type", "prompt is null"});
  EXPECT_STREQ(refused.what(), "wrong type: prompt is null");
  EXPECT_EQ(refused.problem().kind, "wrong type");
}

}  // namespace
}  // namespace apus::data
