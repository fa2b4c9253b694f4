#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/memory_usage.h"
#include "apus/base/safetensors.h"
#include "apus/models/pretrained.h"
#include "tests/support/tensor_checks.h"
#include "tests/unit/models/support/model_folder.h"

namespace apus::models {
namespace {

using namespace apus::testing;
namespace fs = std::filesystem;

const ModelRegistry& registry() {
  static const ModelRegistry kRegistry = [] {
    ModelRegistry filled;
    register_builtin_models(filled);
    return filled;
  }();
  return kRegistry;
}

PretrainedModel load(const ScratchFolder& folder, std::optional<at::ScalarType> dtype = {}) {
  return load_pretrained(folder.path(), registry(), {.dtype = dtype});
}

void expect_mentions(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

at::Tensor* find(std::vector<nn::NamedParameter>& parameters, const std::string& name) {
  for (auto& parameter : parameters)
    if (parameter.name == name) return &parameter.tensor;
  return nullptr;
}

TEST(LoadPretrained, GivesTheSavedParametersFrozenInTheConfigsDtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const ScratchFolder folder;
    RandomModel saved({}, dtype);
    save_pretrained(folder.path(), saved.config_json, saved.parameters);
    const PretrainedModel loaded = load(folder);
    EXPECT_EQ(loaded.dtype, dtype);
    EXPECT_EQ(loaded.config_json, saved.config_json);
    EXPECT_EQ(loaded.spec.model_type, "qwen2");
    EXPECT_EQ(loaded.folder, folder.path());
    const auto found = loaded.model->named_parameters();
    ASSERT_EQ(found.size(), saved.parameters.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].name, saved.parameters[i].name);
      EXPECT_FALSE(found[i].tensor.requires_grad());
      expect_equal(found[i].tensor, saved.parameters[i].tensor, found[i].name);
    }
  }
}

TEST(LoadPretrained, ConvertsToTheDtypeAskedFor) {
  const ScratchFolder folder;
  RandomModel saved({}, at::kFloat);
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  const PretrainedModel loaded = load(folder, at::kBFloat16);
  EXPECT_EQ(loaded.dtype, at::kBFloat16);
  for (size_t i = 0; i < saved.parameters.size(); ++i)
    expect_equal(loaded.model->named_parameters()[i].tensor, saved.parameters[i].tensor.to(at::kBFloat16));
}

TEST(LoadPretrained, WithoutADtypeInTheConfigTheStoredOneCounts) {
  const ScratchFolder folder;
  RandomModel saved({}, at::kBFloat16);
  auto config = nlohmann::json::parse(saved.config_json);
  config.erase("torch_dtype");
  save_pretrained(folder.path(), config.dump(), saved.parameters);
  EXPECT_EQ(load(folder).dtype, at::kBFloat16);
}

TEST(LoadPretrained, TheMappingOutlivesTheModelAndTheFile) {
  const ScratchFolder folder;
  RandomModel saved;
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  at::Tensor kept = load(folder).model->head_weight({});
  fs::remove(folder / "model.safetensors");
  expect_equal(kept, saved.model->head_weight({}));
}

TEST(LoadPretrained, WeightsOfTheSameDtypeTakeNoAnonymousMemory) {
  const ScratchFolder folder;
  RandomModel saved({.vocab_size = 60000,
                     .hidden_size = 128,
                     .num_attention_heads = 4,
                     .num_key_value_heads = 2,
                     .head_dim = 32,
                     .tie_word_embeddings = true});
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  const int64_t table_bytes = 60000 * 128 * 4;
  const int64_t before = resident_anonymous_bytes();
  const PretrainedModel loaded = load(folder);
  EXPECT_GT(largest(loaded.model->head_weight({}).narrow(0, 0, 1)), 0);
  EXPECT_LT(resident_anonymous_bytes() - before, table_bytes / 4);
}

TEST(LoadPretrained, DataThatIsNotAlignedIsCopied) {
  const ScratchFolder folder;
  RandomModel saved;
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  std::string bytes = read_file(folder / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  bytes.insert(8 + header, " ");
  ++header;
  std::memcpy(bytes.data(), &header, 8);
  write_file_atomic(folder / "model.safetensors", bytes);
  const PretrainedModel loaded = load(folder);
  for (size_t i = 0; i < saved.parameters.size(); ++i) {
    const at::Tensor& tensor = loaded.model->named_parameters()[i].tensor;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 4, 0u);
    expect_equal(tensor, saved.parameters[i].tensor);
  }
}

TEST(LoadPretrained, ReadsShards) {
  const ScratchFolder folder;
  RandomModel saved;
  save_pretrained(folder.path(), saved.config_json, saved.parameters, {.max_shard_bytes = 20'000});
  ASSERT_FALSE(fs::exists(folder / "model.safetensors"));
  expect_equal(load(folder).model->head_weight({}), saved.model->head_weight({}));
}

TEST(LoadPretrained, ATiedModelMayBringACopyOfItsHead) {
  const ScratchFolder folder;
  RandomModel saved({.tie_word_embeddings = true});
  saved.parameters.push_back({"lm_head.weight", saved.model->head_weight({}).clone()});
  saved.parameters.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", random_tensor({4}, 1)});
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  EXPECT_EQ(load(folder).model->named_parameters().size(), saved.parameters.size() - 2);
}

TEST(LoadPretrained, KnowsItsFlops) {
  const ScratchFolder folder;
  RandomModel saved;
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  const TokenFlops flops = load(folder).token_flops(7);
  EXPECT_DOUBLE_EQ(flops.matmul, 2.0 * (2 * (32 * 96 + 3 * 32 * 48) + 32 * 128));
  EXPECT_DOUBLE_EQ(flops.attention, 2 * 2 * 2 * 32.0 * 4);
}

TEST(LoadPretrained, NamesAMissingFolderConfigAndModelType) {
  const ScratchFolder folder;
  expect_mentions(message_of<ConfigError>([&] { load_pretrained(folder / "nowhere", registry()); }),
                  {"nowhere", "does not exist"});
  expect_mentions(message_of<ConfigError>([&] { load(folder); }), {"config.json", "is missing"});
  write_file_atomic(folder / "adapter_config.json", "{}");
  expect_mentions(message_of<ConfigError>([&] { load(folder); }), {"holds an adapter"});
  write_file_atomic(folder / "config.json", "{}");
  expect_mentions(message_of<DataError>([&] { load(folder); }), {"config.json", "model_type"});
  write_file_atomic(folder / "config.json", R"({"model_type": "mamba"})");
  expect_mentions(message_of<NotSupported>([&] { load(folder); }), {"mamba", "supported: internlm3, llama"});
}

TEST(LoadPretrained, RefusesPickledAndQuantisedWeights) {
  const ScratchFolder folder;
  RandomModel saved;
  write_file_atomic(folder / "config.json", saved.config_json);
  expect_mentions(message_of<CheckpointError>([&] { load(folder); }), {"model.safetensors"});
  write_file_atomic(folder / "pytorch_model.bin", "x");
  expect_mentions(message_of<CheckpointError>([&] { load(folder); }),
                  {"pytorch_model.bin", "save_pretrained"});
  auto config = nlohmann::json::parse(saved.config_json);
  config["quantization_config"] = {{"quant_method", "gptq"}};
  write_file_atomic(folder / "config.json", config.dump());
  expect_mentions(message_of<NotSupported>([&] { load(folder); }), {"quantization_config"});
}

TEST(LoadPretrained, NamesAMissingTensorAndItsShape) {
  const ScratchFolder folder;
  RandomModel saved;
  std::erase_if(saved.parameters,
                [](const auto& p) { return p.name == "model.layers.1.mlp.up_proj.weight"; });
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  expect_mentions(message_of<CheckpointError>([&] { load(folder); }),
                  {"model.safetensors", "model.layers.1.mlp.up_proj.weight", "is missing", "[48, 32]"});
}

TEST(LoadPretrained, NamesATensorThatTheModelDoesNotHave) {
  const ScratchFolder folder;
  RandomModel saved;
  saved.parameters.push_back({"model.layers.2.mlp.up_proj.weight", random_tensor({48, 32}, 1)});
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  expect_mentions(message_of<CheckpointError>([&] { load(folder); }),
                  {"model.layers.2.mlp.up_proj.weight", "not a parameter of the model"});
}

TEST(LoadPretrained, NamesBothShapes) {
  const ScratchFolder folder;
  RandomModel saved;
  *find(saved.parameters, "model.norm.weight") = random_tensor({33}, 1);
  save_pretrained(folder.path(), saved.config_json, saved.parameters, {.max_shard_bytes = 20'000});
  expect_mentions(message_of<CheckpointError>([&] { load(folder); }),
                  {"model.safetensors.index.json", "model.norm.weight", "[33]", "[32]"});
}

TEST(LoadPretrained, NamesAMissingShard) {
  const ScratchFolder folder;
  RandomModel saved;
  save_pretrained(folder.path(), saved.config_json, saved.parameters, {.max_shard_bytes = 60'000});
  ASSERT_TRUE(fs::remove(folder / "model-00002-of-00002.safetensors"));
  expect_mentions(message_of<CheckpointError>([&] { load(folder); }), {"model-00002-of-00002.safetensors"});
}

TEST(LoadPretrained, RefusesATruncatedFileAndPackedIntegers) {
  const ScratchFolder folder;
  RandomModel saved;
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  fs::resize_file(folder / "model.safetensors", 50'000);
  EXPECT_NE(message_of<CheckpointError>([&] { load(folder); }), "did not throw");
  at::Tensor& norm = *find(saved.parameters, "model.norm.weight");
  norm = norm.to(at::kByte);
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  expect_mentions(message_of<CheckpointError>([&] { load(folder); }), {"model.norm.weight", "U8"});
}

struct OwnModule : nn::Module {
  OwnModule() { weight = register_parameter("weight", at::empty({2, 3}, at::kFloat)); }
  at::Tensor weight;
};

TEST(LoadParameters, FillsAModuleThatIsInNoRegistryAndKeepsItTrainable) {
  const ScratchFolder folder;
  const at::Tensor stored = random_tensor({2, 3}, 1);
  save_pretrained(folder.path(), "{}", {{"theirs.weight", stored}, {"junk", stored}});
  OwnModule own;
  nn::make_trainable(own);
  load_parameters(
      own.named_parameters(), folder.path(),
      {.checkpoint_name = [](const std::string& name) { return "theirs." + name; }, .redundant = {"junk"}});
  expect_equal(own.weight, stored);
  EXPECT_TRUE(own.weight.requires_grad());
}

TEST(LoadPretrained, LaterConversionLeavesStoredDtypesForTheEngine) {
  const ScratchFolder folder;
  RandomModel saved({}, at::kBFloat16);
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  const PretrainedModel loaded =
      load_pretrained(folder.path(), registry(), {.dtype = at::kFloat, .conversion = Conversion::kLater});
  EXPECT_EQ(loaded.dtype, at::kFloat) << "what the parameters are to have";
  for (const auto& parameter : loaded.model->named_parameters()) {
    EXPECT_EQ(parameter.tensor.scalar_type(), at::kBFloat16) << parameter.name;
  }
}

}  // namespace
}  // namespace apus::models
