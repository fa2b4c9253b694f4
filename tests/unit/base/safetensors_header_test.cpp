#include "base/safetensors_header.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apus/base/error.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus::detail {
namespace {

TEST(SafetensorsHeader, ReadsWhatItWrites) {
  const std::vector<TensorSpec> specs = {{.name = "a \"quoted\" é", .dtype = DType::kF32, .shape = {2, 3}},
                                         {.name = "scalar", .dtype = DType::kBF16, .shape = {}},
                                         {.name = "none", .dtype = DType::kU8, .shape = {0}}};
  const std::string json = write_safetensors_header(specs, {{"k", "v\n"}});
  EXPECT_EQ(json.size() % 8, 0u);
  const SafetensorsHeader header = read_safetensors_header(json, "f");
  ASSERT_EQ(header.entries.size(), 3u);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(header.entries[i].spec.name, specs[i].name);
    EXPECT_EQ(header.entries[i].spec.dtype, specs[i].dtype);
    EXPECT_EQ(header.entries[i].spec.shape, specs[i].shape);
  }
  EXPECT_EQ(header.entries[0].end, 24u);
  EXPECT_EQ(header.entries[1].begin, 24u);
  EXPECT_EQ(header.entries[2].end, 26u);
  EXPECT_EQ(header.metadata.at("k"), "v\n");
}

TEST(SafetensorsHeader, TakesFieldsInAnyOrderAndWhiteSpace) {
  const SafetensorsHeader header = read_safetensors_header(
      "{ \"w\" : { \"data_offsets\" : [8, 16], \"shape\" : [ 1 ], \"dtype\" : \"I64\" } }\n", "f");
  EXPECT_EQ(header.entries.at(0).begin, 8u);
  EXPECT_EQ(header.entries.at(0).spec.dtype, DType::kI64);
}

TEST(SafetensorsHeader, EqualNamesWrittenDifferentlyAreDouble) {
  const std::string one = "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
  EXPECT_EQ(message_of<CheckpointError>(
                [&] { read_safetensors_header("{\"w\":" + one + ",\"\\u0077\":" + one + "}", "f"); }),
            "f: tensor 'w': appears twice in the header");
}

TEST(SafetensorsHeader, OneMetadataEntryAtMost) {
  EXPECT_THROW(read_safetensors_header("{\"__metadata__\":{},\"__metadata__\":{}}", "f"), CheckpointError);
}

// As many names as a large mixture of experts has: reading must stay linear.
TEST(SafetensorsHeader, ReadsAHundredThousandNames) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 100'000; ++i)
    specs.push_back({.name = std::to_string(i), .dtype = DType::kU8, .shape = {1}});
  const SafetensorsHeader header = read_safetensors_header(write_safetensors_header(specs, {}), "f");
  EXPECT_EQ(header.entries.size(), 100'000u);
  EXPECT_EQ(header.entries.back().end, 100'000u);
}

}  // namespace
}  // namespace apus::detail
