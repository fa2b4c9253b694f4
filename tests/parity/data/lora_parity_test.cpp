// Every case of kind "lora" against PEFT: logits with and without the adapter, loss and adapter gradients,
// the merged weights, and the adapter saved again.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apus/base/json.h"
#include "apus/base/safetensors.h"
#include "apus/models/pretrained.h"
#include "apus/models/tensor_dtype.h"
#include "apus/ops/token_log_probs.h"
#include "apus/peft/adapter_file.h"
#include "apus/peft/merge.h"
#include "tests/support/case_folder.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tensor_checks.h"

namespace apus::peft {
namespace {

using namespace apus::testing;
namespace fs = std::filesystem;

constexpr const char* kName = "default";

at::Tensor stored(const SafetensorsFile& file, const std::string& name) {
  const TensorView& view = file.at(name);
  void* data = const_cast<std::byte*>(view.data.data());
  return at::from_blob(data, view.shape, models::scalar_type(view.dtype)).clone();
}

/// The sub-folder of a case that holds its adapter.
std::optional<fs::path> adapter_of(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && fs::exists(entry.path() / "adapter_config.json")) return entry.path();
  return std::nullopt;
}

bool is_lora_case(const fs::path& folder) {
  return fs::exists(folder / "golden.safetensors") && adapter_of(folder).has_value();
}

/// The base that the adapter names, or else the one called "base".
fs::path base_of(const fs::path& folder, const nlohmann::json& config) {
  const std::string name = config.value("base_model_name_or_path", "base");
  if (const auto found = cases::find_for_case(folder, fs::path(name) / "config.json"))
    return found->parent_path();
  return cases::require_for_case(folder, "base/config.json").parent_path();
}

/// The first feature that is not built yet; empty if there is none.
std::string missing_feature(const nlohmann::json& config) {
  constexpr std::array kSwitches = {"use_dora",           "lora_bias",         "use_qalora",
                                    "layer_replication",  "target_parameters", "trainable_token_indices",
                                    "ensure_weight_tying"};
  for (const char* key : kSwitches) {
    const nlohmann::json value = config.value(key, nlohmann::json());
    if (!value.is_null() && value != false && !(value.is_structured() && value.empty())) return key;
  }
  const nlohmann::json targets = config.at("target_modules");
  for (const char* name : {"lm_head", "embed_tokens"})
    if (targets.is_array() && std::find(targets.begin(), targets.end(), name) != targets.end())
      return std::string("LoRA on ") + name;
  return "";
}

/// A golden batch: rows padded on the right.
struct Golden {
  explicit Golden(const fs::path& folder)
      : file(folder / "golden.safetensors"), facts(load_json_file(folder / "golden.json")) {
    tokens_BS = stored(file, "input_ids");
    const at::Tensor mask_BS = stored(file, "attention_mask").to(at::kLong);
    const at::Tensor counts_B = mask_BS.sum(1);
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < counts_B.size(0); ++b) lengths.push_back(counts_B[b].item<int64_t>());
    layout = nn::RowLayout::padded(lengths, tokens_BS.size(1));
    real = mask_BS.flatten().nonzero().squeeze(1);
    const at::Tensor labels_BS = stored(file, "labels");
    const at::Tensor none = at::empty({labels_BS.size(0), 1}, at::kLong).fill_(-100);
    const at::Tensor next = at::cat({labels_BS.narrow(1, 1, labels_BS.size(1) - 1), none}, 1).flatten();
    target_rows_M = (next != -100).nonzero().squeeze(1);
    targets_M = next.index_select(0, target_rows_M);
  }

  nn::PassContext context(std::vector<std::string> adapters) const {
    nn::PassContext pass;
    pass.rows = layout;
    pass.adapters = std::move(adapters);
    return pass;
  }

  /// The stored logits of the rows that are no padding.
  at::Tensor logits(const std::string& name) const {
    return stored(file, name).flatten(0, 1).index_select(0, real);
  }

  SafetensorsFile file;
  nlohmann::json facts;
  at::Tensor tokens_BS, real, target_rows_M, targets_M;
  std::shared_ptr<const nn::RowLayout> layout;
};

void check_logits(nn::CausalLm& model, const Golden& golden) {
  const at::NoGradGuard no_grad;
  const auto logits_with = [&](std::vector<std::string> adapters) {
    return model.logits(golden.tokens_BS.flatten(), golden.context(std::move(adapters)))
        .index_select(0, golden.real);
  };
  const Tolerance tolerance{.absolute = 2e-5, .relative = 1e-4};
  expect_close(logits_with({kName}), golden.logits("logits"), tolerance, "with the adapter");
  if (golden.file.find("base_logits"))
    expect_close(logits_with({}), golden.logits("base_logits"), tolerance, "without it");
}

at::Tensor loss_sum(nn::CausalLm& model, const Golden& golden) {
  nn::PassContext context = golden.context({kName});
  model.prepare(context);
  at::Tensor hidden = model.embed(golden.tokens_BS.flatten(), context);
  for (nn::Block* block : model.blocks()) hidden = block->forward(hidden, context);
  const at::Tensor selected = model.final_norm(hidden.index_select(0, golden.target_rows_M), context);
  return -ops::token_log_probs(selected, model.head_weight(context), golden.targets_M).sum();
}

void check_loss_and_gradients(nn::CausalLm& model, const Golden& golden, const fs::path& folder) {
  const double wanted_loss = golden.facts.at("loss_sum"), count = golden.facts.at("loss_count");
  ASSERT_EQ(static_cast<double>(golden.targets_M.numel()), count);
  const at::Tensor loss = loss_sum(model, golden);
  EXPECT_NEAR(loss.item<double>(), wanted_loss, 1e-5 * std::abs(wanted_loss));
  (loss / count).backward();

  const SafetensorsFile grads(folder / "grads.safetensors");
  const std::vector<nn::NamedParameter> parameters = adapter_parameters(model, kName);
  EXPECT_EQ(parameters.size(), grads.tensors().size());
  double squares = 0;
  for (const nn::NamedParameter& parameter : parameters) {
    const at::Tensor wanted = stored(grads, adapter_key(parameter.name, kName));
    expect_close(parameter.tensor.grad(), wanted, {.absolute = 1e-4 * largest(wanted)}, parameter.name);
    squares += parameter.tensor.grad().to(at::kDouble).square().sum().item<double>();
  }
  const double wanted_norm = golden.facts.at("grad_norm_l2");
  EXPECT_NEAR(std::sqrt(squares), wanted_norm, 1e-5 * wanted_norm);
  for (const nn::NamedParameter& parameter : model.named_parameters()) {
    const bool of_adapter =
        std::any_of(parameters.begin(), parameters.end(),
                    [&](const nn::NamedParameter& own) { return own.tensor.is_same(parameter.tensor); });
    EXPECT_EQ(parameter.tensor.requires_grad(), of_adapter) << parameter.name;
  }
}

/// golden.json tells the scaling of one of the adapted modules.
void check_scaling(const LoraSummary& summary, const Golden& golden) {
  const auto size_of = lora_sizes(summary.config);
  const double wanted = golden.facts.at("scaling");
  EXPECT_TRUE(std::any_of(summary.modules.begin(), summary.modules.end(), [&](const std::string& path) {
    return std::abs(size_of(path).scaling - wanted) < 1e-12;
  })) << wanted;
}

/// The adapter as it was read, saved again: the same tensors to the bit, the same settings.
void check_saved_again(const LoadedAdapter& loaded, nn::CausalLm& model, const fs::path& adapter) {
  const ScratchFolder scratch;
  save_adapter(scratch.path(), loaded.summary.config, adapter_parameters(model, kName), kName);
  const SafetensorsFile wanted(adapter / "adapter_model.safetensors"),
      found(scratch.path() / "adapter_model.safetensors");
  EXPECT_EQ(found.tensors().size(), wanted.tensors().size());
  for (const TensorView& tensor : wanted.tensors())
    if (tensor.dtype == DType::kF32)
      expect_equal(stored(found, tensor.name), stored(wanted, tensor.name), tensor.name);
  const nlohmann::json settings = load_json_file(scratch.path() / "adapter_config.json");
  const nlohmann::json before = load_json_file(adapter / "adapter_config.json");
  for (const auto& [key, value] : before.items()) {
    if (value.is_array() && settings.at(key).is_array())
      EXPECT_EQ(std::multiset<nlohmann::json>(settings.at(key).begin(), settings.at(key).end()),
                std::multiset<nlohmann::json>(value.begin(), value.end()))
          << key;
    else
      EXPECT_EQ(settings.at(key), value) << key;
  }
}

/// merge.h against merge_and_unload, where the case has its result. Reads the base's files, not the model.
void check_merged(const fs::path& folder, const fs::path& adapter, const fs::path& base) {
  if (!fs::exists(folder / "merged" / "model.safetensors")) return;
  const SafetensorsFile values(base / "model.safetensors"), wanted(folder / "merged" / "model.safetensors");
  MergeBase about{.tied_head = load_json_file(base / "config.json").value("tie_word_embeddings", false)};
  for (const TensorView& tensor : values.tensors()) about.shapes[tensor.name] = tensor.shape;
  const AdapterMerge merge(adapter, about);
  std::set<std::string> names;
  const auto check = [&](const std::string& name, const std::string& from) {
    expect_close(merge.merged(name, stored(values, from)), stored(wanted, name), {.absolute = 1e-6}, name);
    names.insert(name);
  };
  for (const TensorView& tensor : values.tensors()) check(tensor.name, tensor.name);
  for (const AddedTensor& added : merge.added()) check(added.name, added.like);
  for (const TensorView& tensor : wanted.tensors()) EXPECT_TRUE(names.contains(tensor.name)) << tensor.name;
  if (merge.unties_head()) {
    EXPECT_FALSE(load_json_file(folder / "merged" / "config.json").at("tie_word_embeddings"));
  }
}

/// Runs a case; returns what it needs and is not built, or nothing.
std::string run_case(const fs::path& folder, const models::ModelRegistry& registry) {
  const fs::path adapter = adapter_of(folder).value();
  const nlohmann::json config = load_json_file(adapter / "adapter_config.json");
  const fs::path base = base_of(folder, config);
  if (const std::string type = load_json_file(base / "config.json").at("model_type"); !registry.has(type))
    return "model_type " + type;
  const models::PretrainedModel loaded = models::load_pretrained(base, registry);
  if (const std::string feature = missing_feature(config); !feature.empty()) {
    EXPECT_THROW(load_adapter(adapter, *loaded.model, kName), NotSupported) << "neither run nor refused";
    return feature;
  }
  const LoadedAdapter on_model = load_adapter(adapter, *loaded.model, kName);
  const Golden golden(folder);
  EXPECT_EQ(on_model.warnings, std::vector<std::string>());
  check_scaling(on_model.summary, golden);
  check_saved_again(on_model, *loaded.model, adapter);
  check_merged(folder, adapter, base);
  check_logits(*loaded.model, golden);
  check_loss_and_gradients(*loaded.model, golden, folder);
  return "";
}

TEST(LoraParity, LogitsGradientsMergedWeightsAndSavedFilesEqualPeft) {
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  cases::NotRunCases not_run;
  int run = 0;
  for (const fs::path& folder : cases::find_cases("lora", is_lora_case)) {
    const std::string name = cases::case_name(folder);
    SCOPED_TRACE(name);
    const std::string missing = run_case(folder, registry);
    run += missing.empty();
    if (!missing.empty()) not_run.add(name, missing);
  }
  EXPECT_GT(run + not_run.count(), 0) << "no case of kind lora below " << cases::cases_root();
  EXPECT_GE(run, cases::cases_root() == cases::committed_cases_root() ? 1 : 0);
}

}  // namespace
}  // namespace apus::peft
