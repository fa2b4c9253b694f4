#include "apus/data/columns.h"

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/data/rows_report.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

std::string renamed(const std::string& map, const std::string& row) {
  Json json = Json::parse(row);
  ColumnMap::parse(map).apply(json);
  return json.dump();
}

std::string flag_error(const std::string& text) {
  return message_of<ConfigError>([&] { ColumnMap::parse(text, "--columns"); });
}

TEST(ColumnMap, RenamesKeysOfTheRowAndKeepsTheirOrder) {
  EXPECT_EQ(renamed(R"({"question": "query", "answer": "response"})",
                    R"({"id": 1, "question": "q", "answer": {"question": 2}})"),
            R"({"id":1,"query":"q","response":{"question":2}})");
  EXPECT_EQ(renamed(R"({"question": "query"})", R"({"text": "t"})"), R"({"text":"t"})");
  EXPECT_EQ(renamed(R"({"query": "query"})", R"({"query": "t"})"), R"({"query":"t"})");
}

TEST(ColumnMap, ExchangesTwoKeys) {
  EXPECT_EQ(renamed(R"({"chosen": "rejected", "rejected": "chosen"})", R"({"chosen": 1, "rejected": 2})"),
            R"({"rejected":1,"chosen":2})");
}

TEST(ColumnMap, RefusesARowThatHasBothKeys) {
  Json row = Json::parse(R"({"question": "a", "query": "b"})");
  try {
    ColumnMap::parse(R"({"question": "query"})").apply(row);
    FAIL() << "took both";
  } catch (const RowRefused& refused) {
    EXPECT_EQ(refused.problem().code, "column_collision");
    EXPECT_NE(refused.problem().detail.find("--columns makes 'query' of a key"), std::string::npos);
  }
  EXPECT_EQ(renamed(R"({"question": "query"})", R"({"question": "a", "query": null})"), R"({"query":"a"})");
  EXPECT_EQ(renamed(R"({"question": "query"})", R"({"query": "b", "question": null})"), R"({"query":"b"})");
}

TEST(ColumnMap, NamesFlagAndKeyOfABadMap) {
  EXPECT_NE(flag_error("{").find("--columns: "), std::string::npos);
  EXPECT_NE(flag_error("[]").find("--columns is array"), std::string::npos);
  EXPECT_NE(flag_error(R"({"a": 3})").find("--columns: key 'a' is number"), std::string::npos);
  EXPECT_NE(flag_error(R"({"a": ""})").find("'a' -> '' has an empty name"), std::string::npos);
  EXPECT_NE(flag_error(R"({"a": "query", "b": "query"})").find("keys 'a' and 'b' both become 'query'"),
            std::string::npos);
}

TEST(ColumnMap, SaysWhichKeysItFound) {
  auto row = nlohmann::ordered_json::parse(R"({"answer": "a", "id": 3})");
  const ColumnMap map = ColumnMap::parse(R"({"question": "query", "answer": "response"})");
  EXPECT_EQ(map.apply(row), std::vector<std::string>{"answer"});
  EXPECT_EQ(map.keys(), (std::vector<std::string>{"answer", "question"}));
  EXPECT_TRUE(ColumnMap().apply(row).empty());
}

TEST(ColumnMap, TellsWhereItIsTheWrongWayRound) {
  const ColumnMap map = ColumnMap::parse(R"({"query": "question", "response": "answer"})");
  EXPECT_EQ(map.inversion_hint(nlohmann::ordered_json::parse(R"({"question": "q", "answer": "a"})")),
            "--columns is the wrong way round: it maps the file's key to our key, so give "
            R"({"answer":"response","question":"query"})");
  EXPECT_EQ(map.inversion_hint(nlohmann::ordered_json::parse(R"({"question": "q", "query": "a"})")), "");
  EXPECT_EQ(map.inversion_hint(nlohmann::ordered_json::parse(R"({"foo": "q"})")), "");
  EXPECT_EQ(ColumnMap().inversion_hint(nlohmann::ordered_json::parse(R"({"foo": "q"})")), "");
}

TEST(ColumnMap, TellsItselfInOneFormWhateverTheOrder) {
  EXPECT_EQ(ColumnMap().text(), "");
  EXPECT_TRUE(ColumnMap::parse("{}").empty());
  EXPECT_EQ(ColumnMap::parse(R"({"b": "2", "a": "1"})").text(),
            ColumnMap::parse(R"({"a": "1",  "b": "2"})").text());
  EXPECT_EQ(ColumnMap::parse(R"({"b": "2", "a": "1"})").text(), R"({"a":"1","b":"2"})");
}

}  // namespace
}  // namespace apus::data
