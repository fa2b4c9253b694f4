#include "apus/base/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

std::string nested(int64_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

std::string parse_error_of(std::string_view text, int64_t first_line = 0) {
  return message_of<DataError>([&] { parse_json(text, "a.json", first_line); });
}

TEST(Json, ParsesAndDumps) {
  const nlohmann::json value = parse_json(R"({"b": [1, 2.5, null], "a": "é"})", "a.json");
  EXPECT_EQ(value["b"][1], 2.5);
  EXPECT_EQ(dump_json(value), R"({"a":"é","b":[1,2.5,null]})");
  EXPECT_EQ(dump_json(nlohmann::json("é"), {.ascii = true}), R"("\u00e9")");
  EXPECT_EQ(dump_json(nlohmann::json{{"a", 1}}, {.indent = 2}), "{\n  \"a\": 1\n}");
}

TEST(Json, OrderedKeepsTheKeysOrder) {
  EXPECT_EQ(dump_json(parse_ordered_json(R"({"z":1,"a":2})", "a.json")), R"({"z":1,"a":2})");
}

TEST(Json, ErrorsNameLineColumnAndReason) {
  const std::string message = parse_error_of("{\n  \"a\": tru\n}");
  EXPECT_TRUE(message.starts_with("a.json:2: column 11: not valid JSON: ")) << message;
  EXPECT_NE(message.find("invalid literal"), std::string::npos) << message;
  EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
}

TEST(Json, ErrorsInALaterLineOfAFileCountFromThere) {
  EXPECT_TRUE(parse_error_of("{\"a\": }", 17).starts_with("a.json:17: column 7: "));
  EXPECT_TRUE(parse_error_of("{\n\"a\": }", 17).starts_with("a.json:18: column 6: "));
  EXPECT_TRUE(parse_error_of("").starts_with("a.json:1: column 1: "));
}

TEST(Json, RefusesWhatIsNoJson) {
  for (const char* text :
       {"{", "[1,]", "{'a': 1}", "1 2", "nan", "\"\xFF\"", "\"\\ud800\"", "1e999", "{\"a\" 1}"}) {
    EXPECT_NE(parse_error_of(text), "") << text;
  }
}

TEST(Json, RefusesDeepNestingBeforeBuildingAnything) {
  EXPECT_NO_THROW(parse_json(nested(kMaxJsonDepth), "a.json"));
  EXPECT_EQ(parse_error_of(nested(kMaxJsonDepth + 1)), "a.json:1: column 513: nested deeper than 512 levels");
  EXPECT_NE(parse_error_of(std::string(10'000'000, '[')), "");
  EXPECT_NO_THROW(parse_json("\"" + std::string(1000, '[') + "\\\"[\"", "a.json"))
      << "brackets in strings do not nest";
  StrictJsonSax handler;
  EXPECT_THROW(sax_parse(nested(kMaxJsonDepth + 1), "a.json", handler), DataError);
}

TEST(Json, DumpReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(dump_json(nlohmann::json("a\xFF")), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(dump_json(nlohmann::json(std::numeric_limits<double>::quiet_NaN())), "null");
}

TEST(Json, LoadsFiles) {
  const ScratchFolder folder;
  EXPECT_EQ(load_json_file(folder.put("a.json", "{\"a\": 1}"))["a"], 1);
  EXPECT_EQ(load_ordered_json_file(folder / "a.json")["a"], 1);
  EXPECT_THROW(load_json_file(folder / "missing.json"), FileError);
  const auto broken = folder.put("b.json", "[\n1\n2]");
  EXPECT_TRUE(
      message_of<DataError>([&] { load_json_file(broken); }).starts_with(broken.string() + ":3: column 1"));
}

// Sums the integers of a flat list and stops at a given one.
class SumSax final : public StrictJsonSax {
 public:
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool number_unsigned(number_unsigned_t value) override {
    sum += value;
    return value != 99;
  }
  uint64_t sum = 0;
};

TEST(Json, SaxDeliversEventsAndCanBeStopped) {
  SumSax whole, stopped;
  EXPECT_TRUE(sax_parse("[1, 2, 3]", "a.json", whole));
  EXPECT_EQ(whole.sum, 6u);
  EXPECT_FALSE(sax_parse("[1, 99, 3]", "a.json", stopped));
  EXPECT_EQ(stopped.sum, 100u);
}

TEST(Json, SaxNamesThePlaceOfBrokenText) {
  SumSax handler;
  const std::string message = message_of<DataError>([&] { sax_parse("[1,\n2,}", "a.json", handler); });
  EXPECT_TRUE(message.starts_with("a.json:2: column 3: not valid JSON: ")) << message;
}

TEST(Json, StrictSaxRefusesEveryEventThatIsNotOverridden) {
  for (const char* text : {"null", "true", "-1", "1", "1.5", "\"x\"", "{}", "[]"}) {
    StrictJsonSax handler;
    const std::string message = message_of<DataError>([&] { sax_parse(text, "a.json", handler); });
    EXPECT_TRUE(message.starts_with("JSON: unexpected ")) << text << message;
  }
}

class JsonViewTest : public testing::Test {
 protected:
  nlohmann::json json_ =
      parse_json(R"({"s": "text", "i": 7, "big": 3000000000, "f": 1.5, "million": 1e6, "b": true,
      "none": null, "list": [1, 2], "words": ["a"], "flags": [true, false], "inner": {"x": "y"},
      "huge": 18446744073709551615})",
                 "c.json");
  JsonView view_{json_, "c.json"};
};

TEST_F(JsonViewTest, ReadsEveryType) {
  EXPECT_EQ(view_.require<std::string>("s"), "text");
  EXPECT_EQ(view_.require<int>("i"), 7);
  EXPECT_EQ(view_.require<int64_t>("big"), 3000000000);
  EXPECT_EQ(view_.require<int64_t>("million"), 1000000);
  EXPECT_EQ(view_.require<double>("f"), 1.5);
  EXPECT_EQ(view_.require<double>("i"), 7.0);
  EXPECT_TRUE(view_.require<bool>("b"));
  EXPECT_EQ(view_.require<std::vector<int64_t>>("list"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(view_.require<std::vector<std::string>>("words"), std::vector<std::string>{"a"});
  EXPECT_EQ(view_.require<std::vector<bool>>("flags"), (std::vector<bool>{true, false}));
  EXPECT_EQ(view_.require<nlohmann::json>("inner")["x"], "y");
}

TEST_F(JsonViewTest, NullCountsAsAbsent) {
  EXPECT_FALSE(view_.has("none"));
  EXPECT_FALSE(view_.has("nowhere"));
  EXPECT_EQ(view_.get_or("none", 3), 3);
  EXPECT_EQ(view_.get_or<std::string>("s", "other"), "text");
  EXPECT_EQ(view_.find<double>("nowhere"), std::nullopt);
  EXPECT_FALSE(view_.find_object("none").has_value());
}

TEST_F(JsonViewTest, ErrorsNameFileKeyExpectedAndFound) {
  EXPECT_EQ(message_of<DataError>([&] { view_.require<int>("nowhere"); }),
            "c.json: key 'nowhere' is missing; expected an integer of 32 bits");
  EXPECT_EQ(message_of<DataError>([&] { view_.require<int>("s"); }),
            "c.json: key 's': expected an integer of 32 bits, found string \"text\"");
  EXPECT_EQ(message_of<DataError>([&] { view_.object("inner").require<bool>("x"); }),
            "c.json: key 'inner.x': expected true or false, found string \"y\"");
  EXPECT_EQ(message_of<DataError>([&] { view_.get_or<std::vector<std::string>>("list", {}); }),
            "c.json: key 'list': expected a list, each element a string, found array");
  EXPECT_EQ(message_of<DataError>([&] { view_.object("nowhere"); }),
            "c.json: key 'nowhere' is missing; expected an object");
  EXPECT_EQ(message_of<DataError>([&] { view_.object("f"); }),
            "c.json: key 'f': expected an object, found number 1.5");
}

TEST_F(JsonViewTest, IntegersMustFit) {
  EXPECT_THROW(view_.require<int>("big"), DataError);
  EXPECT_THROW(view_.require<int64_t>("huge"), DataError);
  EXPECT_THROW(view_.require<int64_t>("f"), DataError);
  EXPECT_THROW(view_.require<int64_t>("b"), DataError);
}

TEST_F(JsonViewTest, TheRootMustBeAnObject) {
  const nlohmann::json list = nlohmann::json::array();
  EXPECT_EQ(message_of<DataError>([&] { JsonView(list, "c.json"); }),
            "c.json: the file: expected an object, found array");
  EXPECT_EQ(view_.object("inner").keys(), std::vector<std::string>{"x"});
}

TEST(JsonSettings, AKeyThatStandsTwiceIsNamed) {
  EXPECT_EQ(parse_json_settings(R"({"a": {"b": 1}, "b": [{"b": 2}, {"b": 3}]})", "s.json").at("a").at("b"),
            1);
  for (const char* text : {R"({"a": 1, "a": 1})", R"({"b": [{"c": 1}, {"a": {}, "d": 2, "a": {"e": 3}}]})"}) {
    try {
      parse_json_settings(text, "s.json");
      FAIL() << text;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("s.json: the key 'a' stands twice"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_THROW(parse_json_settings("{", "s.json"), DataError);
}

}  // namespace
}  // namespace apus
