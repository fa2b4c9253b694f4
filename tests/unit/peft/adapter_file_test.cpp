#include "apus/peft/adapter_file.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/safetensors.h"
#include "tests/unit/peft/support/tiny_model.h"

namespace apus::peft {
namespace {

using testing::message_of;
using testing::TinyModel;

namespace fs = std::filesystem;

/// A folder of its own for each test, with a saved adapter of rank 4 on q_proj and v_proj.
class AdapterFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("apus_adapter_") + info->name());
    fs::remove_all(folder_);
    LoraConfig config{.r = 4, .lora_alpha = 8, .targets = {}, .base_model_name_or_path = "tiny", .kept = {}};
    config.targets = LoraTargets::from_names({"q_proj", "v_proj"});
    summary_ = apply_lora(source_, config, "default", {.seed = 9, .dtype = at::kFloat});
    for (const nn::NamedParameter& parameter : adapter_parameters(source_, "default"))
      if (parameter.name.find("lora_B") != std::string::npos) parameter.tensor.detach().fill_(0.25);
    save_adapter(folder_, summary_.config, adapter_parameters(source_, "default"), "default");
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path weights() const { return folder_ / "adapter_model.safetensors"; }

  /// Replaces a piece of adapter_config.json.
  void edit_config(const std::string& from, const std::string& to) {
    std::string text = read_file(folder_ / "adapter_config.json");
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file_atomic(folder_ / "adapter_config.json", text.replace(at, from.size(), to));
  }

  /// Writes the weights again after `change` saw the list of views.
  void edit_weights(const std::function<void(std::vector<TensorView>&)>& change) {
    const SafetensorsFile file(weights());
    std::vector<TensorView> views = file.tensors();
    change(views);
    write_safetensors(folder_ / "changed", views);
    fs::rename(folder_ / "changed", weights());
  }

  /// The message with which loading is refused; the model must stay as it was.
  template <typename E>
  std::string refusal() {
    TinyModel model;
    const std::size_t before = model.named_parameters().size();
    const std::string message = message_of<E>([&] { load_adapter(folder_, model, "default"); });
    EXPECT_EQ(model.named_parameters().size(), before);
    return message;
  }

  fs::path folder_;
  TinyModel source_;
  LoraSummary summary_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(AdapterFile, LoadsBackWhatWasSavedUnderAnotherName) {
  TinyModel model;
  const LoadedAdapter loaded = load_adapter(folder_, model, "policy");
  EXPECT_EQ(loaded.summary.modules, summary_.modules);
  EXPECT_EQ(loaded.summary.parameters, summary_.parameters);
  EXPECT_EQ(loaded.summary.config.base_model_name_or_path, "tiny");
  EXPECT_TRUE(loaded.warnings.empty());
  const auto saved = adapter_parameters(source_, "default"), read = adapter_parameters(model, "policy");
  ASSERT_EQ(saved.size(), read.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_TRUE(at::equal(saved[i].tensor, read[i].tensor)) << saved[i].name;
    EXPECT_TRUE(read[i].tensor.requires_grad() && read[i].tensor.is_leaf());
  }
  EXPECT_EQ(model.layers[0].v_proj.find_adapter("policy")->scaling, 2.0);
}

TEST_F(AdapterFile, LoadsFrozenAndInAnotherDtypeWhereAsked) {
  TinyModel model;
  load_adapter(folder_, model, "reference", {.use = AdapterUse::kFrozen, .dtype = at::kBFloat16});
  for (const nn::NamedParameter& parameter : adapter_parameters(model, "reference")) {
    EXPECT_FALSE(parameter.tensor.requires_grad());
    EXPECT_EQ(parameter.tensor.scalar_type(), at::kBFloat16);
  }
}

TEST_F(AdapterFile, HasPeftsKeysAndFormat) {
  const SafetensorsFile file(weights());
  EXPECT_EQ(file.tensors().size(), 8u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.at("base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight").shape,
            (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(adapter_key("model.x.lora_A.default.weight", "default"),
            "base_model.model.model.x.lora_A.weight");
}

TEST_F(AdapterFile, RewritesPeftsOwnFileByteForByte) {
  // Through tensors of the sizes that PEFT stored: order, alignment and header are those of its library.
  const fs::path peft = fs::path(APUS_SOURCE_DIR) / "tests/data/cases/lora/plain/adapter";
  const SafetensorsFile file(peft / "adapter_model.safetensors");
  std::vector<nn::NamedParameter> tensors;
  const std::string prefix = "base_model.model.", tail = ".weight";
  for (const TensorView& view : file.tensors()) {
    const std::string inner = view.name.substr(prefix.size(), view.name.size() - prefix.size() - tail.size());
    tensors.push_back({inner + ".default.weight", at::zeros(view.shape, at::kFloat)});
    std::memcpy(tensors.back().tensor.mutable_data_ptr(), view.data.data(), view.data.size());
  }
  const LoraConfig config =
      parse_lora_config(read_file(peft / "adapter_config.json"), "adapter_config.json").config;
  save_adapter(folder_, config, tensors, "default");
  EXPECT_TRUE(read_file(weights()) == read_file(peft / "adapter_model.safetensors"));
  EXPECT_EQ(read_file(folder_ / "adapter_config.json"), read_file(peft / "adapter_config.json"));
}

TEST_F(AdapterFile, SavesBf16AsBf16) {
  std::vector<nn::NamedParameter> tensors = adapter_parameters(source_, "default");
  for (nn::NamedParameter& parameter : tensors) parameter.tensor = parameter.tensor.to(at::kBFloat16);
  save_adapter(folder_, summary_.config, tensors, "default");
  const SafetensorsFile file(weights());
  for (const TensorView& view : file.tensors()) EXPECT_EQ(view.dtype, DType::kBF16);
  TinyModel model;
  load_adapter(folder_, model, "default");
  EXPECT_TRUE(at::equal(adapter_parameters(model, "default")[0].tensor, tensors[0].tensor.to(at::kFloat)));
}

TEST_F(AdapterFile, RefusesAFolderWithoutConfiguration) {
  fs::remove(folder_ / "adapter_config.json");
  EXPECT_TRUE(contains(refusal<CheckpointError>(), "adapter_config.json: there is no such file"));
}

TEST_F(AdapterFile, RefusesAFolderWithoutWeights) {
  fs::remove(weights());
  EXPECT_TRUE(contains(refusal<CheckpointError>(), "adapter_model.safetensors: there is no such file"));
}

TEST_F(AdapterFile, RefusesAPickleWithTheCommandThatConvertsIt) {
  fs::rename(weights(), folder_ / "adapter_model.bin");
  const std::string message = refusal<NotSupported>();
  EXPECT_TRUE(contains(message, "adapter_model.bin is a pickle")) << message;
  EXPECT_TRUE(contains(message, "weights_only=True")) << message;
}

TEST_F(AdapterFile, RefusesARankThatDoesNotFitTheWeights) {
  edit_config("\"r\": 4", "\"r\": 8");
  const std::string message = refusal<CheckpointError>();
  EXPECT_TRUE(contains(message,
                       "adapter_model.safetensors: tensor "
                       "'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight'"))
      << message;
  EXPECT_TRUE(
      contains(message, "has shape [4, 6], expected [8, 6] = [r, in], with r = 8 from adapter_config.json"))
      << message;
}

TEST_F(AdapterFile, RefusesShapesThatDoNotFitTheModel) {
  const std::vector<float> zeros(4 * 7);
  edit_weights([&](std::vector<TensorView>& views) {
    for (TensorView& view : views)
      if (view.name.ends_with("layers.1.self_attn.v_proj.lora_B.weight")) {
        view.shape = {7, 4};
        view.data = std::as_bytes(std::span<const float>(zeros));
      }
  });
  const std::string message = refusal<CheckpointError>();
  EXPECT_TRUE(contains(message,
                       "layers.1.self_attn.v_proj.lora_B.weight': has shape [7, 4], expected [4, 4] = "
                       "[out, r]"))
      << message;
  EXPECT_TRUE(contains(message, "adapter made for 'tiny'")) << message;
}

TEST_F(AdapterFile, RefusesAMissingTensor) {
  edit_weights([](std::vector<TensorView>& views) {
    std::erase_if(views, [](const TensorView& view) {
      return view.name.ends_with("0.self_attn.v_proj.lora_B.weight");
    });
  });
  EXPECT_TRUE(contains(refusal<CheckpointError>(), "layers.0.self_attn.v_proj.lora_B.weight': is missing"));
}

TEST_F(AdapterFile, RefusesATensorThatNoTargetNames) {
  edit_config("\"q_proj\",\n    \"v_proj\"", "\"q_proj\"");
  EXPECT_TRUE(contains(refusal<CheckpointError>(), "v_proj.lora_A.weight': belongs to no target"));
}

TEST_F(AdapterFile, RefusesIntegerTensors) {
  edit_weights([](std::vector<TensorView>& views) { views.front().dtype = DType::kI32; });
  EXPECT_TRUE(contains(refusal<CheckpointError>(), "is stored as I32, expected F32, BF16, F16 or F64"));
}

TEST_F(AdapterFile, RefusesTruncatedWeights) {
  fs::resize_file(weights(), fs::file_size(weights()) - 8);
  EXPECT_TRUE(contains(refusal<CheckpointError>(), "adapter_model.safetensors"));
}

TEST_F(AdapterFile, RefusesFeaturesOfTheConfigurationByKey) {
  edit_config("\"use_dora\": false", "\"use_dora\": true");
  EXPECT_TRUE(contains(refusal<NotSupported>(), "use_dora = true is not supported yet"));
}

TEST_F(AdapterFile, RefusesAnAdapterOfAModelWithOtherModules) {
  edit_config("\"q_proj\",\n    \"v_proj\"", "\"query_key_value\"");
  EXPECT_TRUE(contains(refusal<ConfigError>(), "'query_key_value' matches no projection"));
}

TEST_F(AdapterFile, WarnsOfATargetNameThatThisModelLacks) {
  edit_config("\"q_proj\"", "\"query\",\n    \"q_proj\"");
  TinyModel model;
  const LoadedAdapter loaded = load_adapter(folder_, model, "default");
  ASSERT_EQ(loaded.warnings.size(), 1u);
  EXPECT_TRUE(contains(loaded.warnings[0], "'query' matches no projection"));
}

TEST_F(AdapterFile, RefusesANameInUse) {
  EXPECT_THROW(load_adapter(folder_, source_, "default"), ConfigError);
}

TEST_F(AdapterFile, SavesOnlyWholeAdaptersOfTheRightNameAndRank) {
  const fs::path target = folder_ / "other";
  const std::vector<nn::NamedParameter> tensors = adapter_parameters(source_, "default");
  const auto save = [&](const std::vector<nn::NamedParameter>& list, const std::string& name) {
    return message_of<ConfigError>([&] { save_adapter(target, summary_.config, list, name); });
  };
  EXPECT_TRUE(contains(save({}, "default"), "no tensors"));
  EXPECT_TRUE(contains(save(tensors, "second"), "is no tensor of adapter 'second'"));
  EXPECT_TRUE(contains(save({tensors[0]}, "default"), "lacks its lora_B"));
  EXPECT_TRUE(contains(save({tensors[0], tensors[0]}, "default"), "given twice"));
  EXPECT_TRUE(
      contains(save({{tensors[0].name, at::zeros({3, 6}, at::kFloat)}, tensors[1]}, "default"), "r = 4"));
  EXPECT_TRUE(contains(save({{tensors[0].name, tensors[0].tensor.to(at::kDouble)}, tensors[1]}, "default"),
                       "saved in Float or BFloat16"));
  EXPECT_FALSE(fs::exists(target / "adapter_model.safetensors"));
}

TEST_F(AdapterFile, NamesThePathItCannotWrite) {
  std::ofstream(folder_ / "file") << "in the way";
  const std::string message = message_of<FileError>([&] {
    save_adapter(folder_ / "file", summary_.config, adapter_parameters(source_, "default"), "default");
  });
  EXPECT_TRUE(contains(message, (folder_ / "file").string())) << message;
}

}  // namespace
}  // namespace apus::peft
