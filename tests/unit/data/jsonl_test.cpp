#include "apus/data/jsonl.h"

#include "apus/base/error.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Jsonl = RowsTest;

TEST_F(Jsonl, SplitsAtNewlinesAlone) {
  const std::string separators = "{\"a\": \"x\u2028y\u0085z\vq\fr\"}";
  const JsonlFile file({write("a.jsonl", separators + "\n{\"b\": 1}\n"), {}});
  ASSERT_EQ(file.size(), 2);
  EXPECT_EQ(file.row(0), separators);
  EXPECT_EQ(file.row(1), "{\"b\": 1}");
}

TEST_F(Jsonl, KeepsLineNumbersOverBlankLinesMarksAndCarriageReturns) {
  const JsonlFile file({write("a.jsonl", "\xEF\xBB\xBF{1}\r\n\r\n \t\n{2}\n\n{3}"), {}});
  ASSERT_EQ(file.size(), 3);
  EXPECT_EQ(file.row(0), "{1}");
  EXPECT_EQ(file.row(1), "{2}");
  EXPECT_EQ(file.row(2), "{3}");
  EXPECT_EQ(file.line(0), 1);
  EXPECT_EQ(file.line(1), 4);
  EXPECT_EQ(file.line(2), 6);
}

TEST_F(Jsonl, AnEmptyFileHasNoRows) {
  EXPECT_EQ(JsonlFile({write("empty.jsonl", ""), {}}).size(), 0);
  const JsonlFile blank({write("blank.jsonl", "\n\n\r\n"), {}});
  EXPECT_EQ(blank.size(), 0);
  EXPECT_EQ(blank.used_bytes(), "");
}

TEST_F(Jsonl, TakesTheFirstRowsOnly) {
  const std::string path = write("a.jsonl", "{1}\n\n{2}\n{3}\n");
  const JsonlFile two({path, 2});
  ASSERT_EQ(two.size(), 2);
  EXPECT_EQ(two.row(1), "{2}");
  EXPECT_EQ(two.used_bytes(), "{1}\n\n{2}");
  EXPECT_TRUE(two.limit_reached());
  EXPECT_FALSE(JsonlFile({path, 4}).limit_reached());
  EXPECT_TRUE(JsonlFile({path, {}}).limit_reached());
}

TEST_F(Jsonl, ReadsTheLimitOffTheName) {
  const DatasetSource limited = parse_dataset_source("data/train.jsonl#500");
  EXPECT_EQ(limited.path, "data/train.jsonl");
  EXPECT_EQ(limited.limit, 500);
  EXPECT_EQ(limited.text(), "data/train.jsonl#500");
  EXPECT_EQ(parse_dataset_source("train.jsonl").limit, std::nullopt);
  const std::string odd = write("part#7", "{1}\n");
  EXPECT_EQ(parse_dataset_source(odd).path, odd);
  EXPECT_EQ(parse_dataset_source(odd + "#1").limit, 1);
}

TEST_F(Jsonl, RefusesALimitThatIsNoNumberOfRows) {
  for (const char* text : {"a.jsonl#", "a.jsonl#x", "a.jsonl#0", "a.jsonl#-1", "a.jsonl#1.5", "#3",
                           "a.jsonl#99999999999999999999"}) {
    const auto message = message_of<ConfigError>([&] { parse_dataset_source(text, "--val_dataset"); });
    EXPECT_NE(message.find(std::string("--val_dataset ") + text), std::string::npos) << message;
    EXPECT_NE(message.find("FILE#N"), std::string::npos) << message;
  }
  EXPECT_THROW(parse_dataset_source(""), ConfigError);
}

TEST_F(Jsonl, NamesPathAndFlagOfAMissingFile) {
  const std::string path = (folder() / "missing.jsonl").string();
  EXPECT_EQ(message_of<DataError>([&] { JsonlFile({path, {}}); }), path + ": no such file; check --dataset");
  const auto relative = message_of<DataError>([] { JsonlFile({"no_such_file.jsonl", {}}, "--val_dataset"); });
  EXPECT_EQ(relative, "no_such_file.jsonl: no such file; check --val_dataset (working directory: " +
                          std::filesystem::current_path().string() + ")");
}

TEST_F(Jsonl, RefusesOtherFormatsWithWhatToDo) {
  const auto refusal = [&](const std::string& name, std::string_view text) {
    return message_of<NotSupported>([&] { JsonlFile({write(name, text), {}}); });
  };
  EXPECT_NE(refusal("a.json", "\n [{}]").find("jq -c"), std::string::npos);
  EXPECT_NE(refusal("a.jsonl", "\x1f\x8b..").find("gunzip"), std::string::npos);
  EXPECT_NE(refusal("b.jsonl", "\x28\xb5\x2f\xfd..").find("unzstd"), std::string::npos);
  EXPECT_NE(refusal("a.parquet", "PAR1").find("parquet"), std::string::npos);
  EXPECT_NE(refusal("a.csv", "a,b\n").find("csv"), std::string::npos);
  EXPECT_NE(message_of<NotSupported>([&] { JsonlFile({folder(), {}}); }).find("folder"), std::string::npos);
  EXPECT_EQ(JsonlFile({write("lines.json", "{}\n{}\n"), {}}).size(), 2);
}

TEST_F(Jsonl, AnArrayIsRefusedWhateverItsNameAndLayout) {
  for (const char* text : {"[\n{\"a\": 1},\n{\"a\": 2}\n]\n", "[{\"a\": 1}]", "\xEF\xBB\xBF [{}]"}) {
    try {
      JsonlFile({write("rows.jsonl", text), {}});
      FAIL() << text;
    } catch (const NotSupported& error) {
      EXPECT_NE(std::string(error.what()).find("jq -c"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace apus::data
