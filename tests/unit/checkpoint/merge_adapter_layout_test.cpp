#include "checkpoint/merge_adapter_layout.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/checkpoint/support/merge_inputs.h"

namespace apus::checkpoint {
namespace {

/// Two shards; their tensors take 8, 16 and 24 bytes.
void put_base(const ScratchFolder& scratch) {
  write_floats(scratch / "model-00001-of-00002.safetensors",
               {{"embed", {2}, {1, 2}}, {"a", {4}, {1, 2, 3, 4}}});
  write_floats(scratch / "model-00002-of-00002.safetensors", {{"b", {6}, {1, 2, 3, 4, 5, 6}}});
  scratch.put("model.safetensors.index.json", R"({"weight_map": {"embed": "model-00001-of-00002.safetensors",
      "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
}

std::vector<std::string> names_of(const MergedFile& file) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : file.tensors) names.push_back(tensor.name);
  return names;
}

TEST(MergedLayout, IsTheBases) {
  const ScratchFolder scratch;
  put_base(scratch);
  const MergedLayout layout = merged_layout(ShardedSafetensors(scratch.path()), {}, {});
  ASSERT_EQ(layout.files.size(), 2u);
  EXPECT_EQ(layout.files[0].name, "model-00001-of-00002.safetensors");
  EXPECT_EQ(names_of(layout.files[0]), (std::vector<std::string>{"a", "embed"}));
  EXPECT_EQ(layout.bytes, 48);
  EXPECT_TRUE(layout.has_index);
}

TEST(MergedLayout, PutsAnAddedTensorBesideItsLike) {
  const ScratchFolder scratch;
  put_base(scratch);
  const ShardedSafetensors base(scratch.path());
  const MergedLayout layout = merged_layout(base, {{.name = "head", .like = "embed"}}, {});
  EXPECT_EQ(names_of(layout.files[0]), (std::vector<std::string>{"a", "embed", "head"}));
  EXPECT_EQ(layout.files[0].tensors[2].shape, std::vector<int64_t>{2});
  EXPECT_EQ(layout.bytes, 56);
  EXPECT_EQ(nlohmann::json::parse(index_text(layout))["weight_map"]["head"],
            "model-00001-of-00002.safetensors");
}

TEST(MergedLayout, AddsNoTensorThatTheBaseHas) {
  const ScratchFolder scratch;
  put_base(scratch);
  const ShardedSafetensors base(scratch.path());
  EXPECT_EQ(merged_layout(base, {{.name = "a", .like = "embed"}}, {}).bytes, 48);
}

TEST(MergedLayout, CutsInTheBasesOrder) {
  const ScratchFolder scratch;
  put_base(scratch);
  const ShardedSafetensors base(scratch.path());
  const MergedLayout layout = merged_layout(base, {}, 24);
  ASSERT_EQ(layout.files.size(), 2u);
  EXPECT_EQ(names_of(layout.files[0]), (std::vector<std::string>{"a", "embed"}));
  EXPECT_EQ(layout.files[1].name, "model-00002-of-00002.safetensors");
  const MergedLayout small = merged_layout(base, {}, 1);
  ASSERT_EQ(small.files.size(), 3u);
  EXPECT_EQ(small.files[2].name, "model-00003-of-00003.safetensors");
  const MergedLayout one = merged_layout(base, {}, 1000);
  ASSERT_EQ(one.files.size(), 1u);
  EXPECT_EQ(one.files[0].name, "model.safetensors");
  EXPECT_FALSE(one.has_index);
  EXPECT_THROW(merged_layout(base, {}, 0), ConfigError);
}

}  // namespace
}  // namespace apus::checkpoint
