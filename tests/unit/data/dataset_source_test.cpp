#include "apus/data/dataset_source.h"

#include "apus/base/error.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using DatasetSourceTest = RowsTest;

TEST_F(DatasetSourceTest, ReadsTheLimitOffTheName) {
  const DatasetSource limited = parse_dataset_source("data/train.jsonl#500");
  EXPECT_EQ(limited.path, "data/train.jsonl");
  EXPECT_EQ(limited.limit, 500);
  EXPECT_EQ(limited.text(), "data/train.jsonl#500");
  EXPECT_EQ(parse_dataset_source("train.jsonl").limit, std::nullopt);
  const std::string odd = write("part#7", "{1}\n");
  EXPECT_EQ(parse_dataset_source(odd).path, odd);
  EXPECT_EQ(parse_dataset_source(odd + "#1").limit, 1);
}

TEST_F(DatasetSourceTest, RefusesALimitThatIsNoNumberOfRows) {
  for (const char* text : {"a.jsonl#", "a.jsonl#x", "a.jsonl#0", "a.jsonl#-1", "a.jsonl#1.5", "#3",
                           "a.jsonl#99999999999999999999"}) {
    const auto message = message_of<ConfigError>([&] { parse_dataset_source(text, "--val_dataset"); });
    EXPECT_NE(message.find(std::string("--val_dataset ") + text), std::string::npos) << message;
    EXPECT_NE(message.find("FILE#N"), std::string::npos) << message;
  }
  EXPECT_THROW(parse_dataset_source(""), ConfigError);
}

}  // namespace
}  // namespace apus::data
