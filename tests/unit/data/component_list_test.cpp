#include "data/component_list.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

std::vector<std::string> types_of(const std::string& component) {
  const TokenizerJson file = parse_tokenizer_json(R"({"decoder":)" + component + "}", "t.json");
  std::vector<std::string> types;
  for (const JsonView& view : component_list(file, "decoder", "decoders"))
    types.push_back(view.require<std::string>("type"));
  return types;
}

using Types = std::vector<std::string>;

TEST(ComponentList, IsEmptyWhereThereIsNone) {
  EXPECT_EQ(types_of("null"), Types{});
  EXPECT_TRUE(component_list(parse_tokenizer_json("{}", "t.json"), "decoder", "decoders").empty());
}

TEST(ComponentList, FlattensNestedSequences) {
  EXPECT_EQ(types_of(R"({"type":"A"})"), Types{"A"});
  EXPECT_EQ(types_of(R"({"type":"Sequence","decoders":[]})"), Types{});
  EXPECT_EQ(types_of(R"({"type":"Sequence","decoders":[{"type":"A"},)"
                     R"({"type":"Sequence","decoders":[{"type":"B"},{"type":"C"}]},{"type":"D"}]})"),
            (Types{"A", "B", "C", "D"}));
}

TEST(ComponentList, NamesThePlaceOfWhatIsMalformed) {
  const auto error_of = [](const std::string& component) -> std::string {
    try {
      types_of(component);
      return "none";
    } catch (const DataError& error) {
      return error.what();
    }
  };
  EXPECT_NE(error_of(R"({"type":"Sequence"})").find("decoder.decoders"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"Sequence","normalizers":[]})").find("decoder.decoders"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"Sequence","decoders":[{"type":"A"},{}]})").find("decoder.decoders[1]"),
            std::string::npos);
  EXPECT_NE(error_of("{}").find("decoder"), std::string::npos);
}

TEST(RefuseComponent, NamesFileComponentTypeAndWhatIsKnown) {
  const nlohmann::json json = {{"type", "Odd"}};
  try {
    refuse_component(JsonView(json, "folder/t.json", "decoder"), "Odd", "A, B");
    FAIL() << "returned";
  } catch (const NotSupported& error) {
    const std::string message = error.what();
    for (const char* part : {"folder/t.json", "decoder.type", "'Odd'", "A, B"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace apus::data
