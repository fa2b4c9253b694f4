#include <algorithm>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/safetensors.h"
#include "apus/models/pretrained.h"
#include "tests/support/tensor_checks.h"
#include "tests/unit/models/support/model_folder.h"

namespace apus::models {
namespace {

using namespace apus::testing;

std::vector<std::string> files_of(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Six tensors of 40 bytes each.
std::vector<nn::NamedParameter> six() {
  std::vector<nn::NamedParameter> parameters;
  for (int i = 0; i < 6; ++i) parameters.push_back({"w" + std::to_string(i), random_tensor({2, 5}, 30 + i)});
  return parameters;
}

TEST(SavePretrained, WritesOneFileThatTransformersReads) {
  const ScratchFolder folder;
  save_pretrained(folder.path() / "new", "{\"a\": 1}", six());
  EXPECT_EQ(files_of(folder.path() / "new"), (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(read_file(folder.path() / "new/config.json"), "{\"a\": 1}");
  const SafetensorsFile file(folder.path() / "new/model.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), 6u);
}

TEST(SavePretrained, CutsShardsInOrderAndIndexesThem) {
  const ScratchFolder folder;
  save_pretrained(folder.path(), "{}", six(), {.max_shard_bytes = 100});
  EXPECT_EQ(files_of(folder.path()),
            (std::vector<std::string>{"config.json", "model-00001-of-00003.safetensors",
                                      "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                                      "model.safetensors.index.json"}));
  const auto index = load_json_file(folder / "model.safetensors.index.json");
  EXPECT_EQ(index["metadata"]["total_size"], 240);
  EXPECT_EQ(index["weight_map"].size(), 6u);
  EXPECT_EQ(index["weight_map"]["w1"], "model-00001-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["w2"], "model-00002-of-00003.safetensors");
}

TEST(SavePretrained, ATensorBeyondTheLimitHasAShardOfItsOwn) {
  const ScratchFolder folder;
  save_pretrained(folder.path(), "{}", six(), {.max_shard_bytes = 1});
  EXPECT_EQ(load_json_file(folder / "model.safetensors.index.json")["weight_map"]["w5"],
            "model-00006-of-00006.safetensors");
}

TEST(SavePretrained, ReplacesWeightsOfAnEarlierSaveInTheOtherLayout) {
  const ScratchFolder folder;
  save_pretrained(folder.path(), "{}", six());
  save_pretrained(folder.path(), "{}", six(), {.max_shard_bytes = 100});
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors"));
  save_pretrained(folder.path(), "{}", six(), {.max_shard_bytes = 160});
  EXPECT_FALSE(std::filesystem::exists(folder / "model-00003-of-00003.safetensors"));
  save_pretrained(folder.path(), "{}", six());
  EXPECT_EQ(files_of(folder.path()), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST(SavePretrained, WritesViewsInTheirOwnOrderOfElements) {
  const ScratchFolder folder;
  const at::Tensor whole = random_tensor({4, 6}, 1);
  save_pretrained(folder.path(), "{}", {{"t", whole.t()}, {"part", whole.narrow(0, 1, 2).detach()}});
  const SafetensorsFile file(folder / "model.safetensors");
  const TensorView& transposed = file.at("t");
  EXPECT_EQ(transposed.shape, (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(read_element(transposed.dtype, transposed.data, 1), whole[1][0].item<double>());
  EXPECT_EQ(read_element(DType::kF32, file.at("part").data, 0), whole[1][0].item<double>());
}

TEST(SavePretrained, RenamesByTheGivenMap) {
  const ScratchFolder folder;
  save_pretrained(folder.path(), "{}", {{"own", random_tensor({2}, 1)}},
                  {.checkpoint_name = [](const std::string& name) { return "their." + name; }});
  EXPECT_NE(SafetensorsFile(folder / "model.safetensors").find("their.own"), nullptr);
}

TEST(SavePretrained, RefusesNothingToSaveABrokenConfigAndABadLimit) {
  const ScratchFolder folder;
  EXPECT_THROW(save_pretrained(folder.path(), "{}", {}), ConfigError);
  EXPECT_THROW(save_pretrained(folder.path(), "{", six()), DataError);
  EXPECT_THROW(save_pretrained(folder.path(), "{}", six(), {.max_shard_bytes = 0}), ConfigError);
  EXPECT_TRUE(files_of(folder.path()).empty());
}

}  // namespace
}  // namespace apus::models
