#include "data/row_scanner.h"

#include <algorithm>
#include <limits>

#include "apus/base/error.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
const RowScannerOptions kOptions{.name = "f.json", .block_bytes = kAll, .max_row_bytes = kAll};

/// "line: text" of the rows of a text that arrives in pieces of one size.
std::vector<std::string> scan(RowScanner& scanner, std::string_view text, size_t piece) {
  RowBlock block;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, piece);
    text.remove_prefix(scanner.feed(part, kAll, block));
  }
  scanner.finish(block);
  std::vector<std::string> rows;
  for (int64_t i = 0; i < block.size(); ++i)
    rows.push_back(std::to_string(block.line(i)) + ": " + std::string(block.text(i)));
  return rows;
}

std::vector<std::string> scan_array(std::string_view text, size_t piece = 1000) {
  return scan(*make_array_scanner(kOptions), text, piece);
}

TEST(ArrayScanner, FindsElementsWhateverTheirKindAndWhereverPiecesEnd) {
  const std::string text =
      "[ {\"a\": [1, {\"b\": \"]}\"}]},\n 12.5 ,true,\n\n\"a, \\\"b\\\\\" , [[], {}],\r\nnull,{\"c\": "
      "\"x\ny\"}\n ]\n ";
  const std::vector<std::string> expected = {"1: {\"a\": [1, {\"b\": \"]}\"}]}",
                                             "2: 12.5",
                                             "2: true",
                                             "4: \"a, \\\"b\\\\\"",
                                             "4: [[], {}]",
                                             "5: null",
                                             "5: {\"c\": \"x\ny\"}"};
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{1000}})
    EXPECT_EQ(scan_array(text, piece), expected) << piece;
}

TEST(ArrayScanner, NamesTheLineWhereTheArrayIsBroken) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[{}\n{}]", "f.json:2: broken JSON array (element 1): expected ',' or ']' behind an element, got '{'"},
      {"[{},\n]", "f.json:2: broken JSON array (element 2): expected an element, got ']'"},
      {"[,{}]", "f.json:1: broken JSON array (element 1): expected an element, got ','"},
      {"[{}}", "f.json:1: broken JSON array (element 1): expected ',' or ']' behind an element, got '}'"},
      {"[{\"a\": [1}]", "f.json:1: broken JSON array (element 1): expected ']', got '}'"},
      {"[{}]\n\n[{}]", "f.json:3: broken JSON array: expected nothing behind the array, got '['"},
      {"[{},\n",
       "f.json:2: broken JSON array (element 2): the array has no closing ']'; was the file cut short?"},
      {"[{},\n{\"a\":\n1",
       "f.json:2: broken JSON array (element 2): the element that begins here has no end; was the file cut "
       "short?"},
      {"[" + std::string(600, '['),
       "f.json:1: broken JSON array (element 1): an element is nested deeper than 512 levels"},
  };
  for (const auto& [text, message] : cases)
    for (const size_t piece : {size_t{1}, size_t{1000}})
      EXPECT_EQ(message_of<DataError>([&] { scan_array(text, piece); }), message);
}

TEST(LineScanner, FindsLinesWhereverPiecesEnd) {
  const std::string text = "{1}\r\n\n  \n{\"a\": \"b\"} \n[3]";
  const std::vector<std::string> expected = {"7: {1}", "10: {\"a\": \"b\"} ", "11: [3]"};
  RowScannerOptions options = kOptions;
  options.first_line = 7;
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{5}, size_t{1000}})
    EXPECT_EQ(scan(*make_line_scanner(options), text, piece), expected) << piece;
}

TEST(LineScanner, StopsWhereTheBlockIsFull) {
  const auto scanner = make_line_scanner({.block_bytes = 4, .max_row_bytes = kAll});
  RowBlock block;
  EXPECT_EQ(scanner->feed("{1}\n{2}\n{3}\n", kAll, block), 8u);
  EXPECT_EQ(block.size(), 2);
  block.clear();
  EXPECT_EQ(scanner->feed("{3}\n{4}\n", 1, block), 4u);
  EXPECT_EQ(block.size(), 1);
  EXPECT_EQ(block.line(0), 3);
}

TEST(PartialRow, LetsGoOfARowThatGetsTooLong) {
  PartialRow row(5);
  row.append("abc");
  row.append("de");
  EXPECT_EQ(row.text(), "abcde");
  row.append("f");
  EXPECT_TRUE(row.is_too_long());
  EXPECT_EQ(row.text(), "");
  RowBlock block;
  row.move_to(block, 4);
  EXPECT_TRUE(block.is_too_long(0));
  EXPECT_TRUE(row.is_empty());
}

}  // namespace
}  // namespace apus::data
