#include "apus/peft/adapter_file.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/safetensors.h"
#include "peft/target_selection.h"

namespace apus::peft {
namespace {

using detail::Projection;

constexpr std::string_view kConfigName = "adapter_config.json";
constexpr std::string_view kWeightsName = "adapter_model.safetensors";
constexpr std::string_view kKeyPrefix = "base_model.model.";

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

at::ScalarType scalar_type_of(DType dtype, const std::string& file, const std::string& key) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    case DType::kF64:
      return at::kDouble;
    default:
      throw CheckpointError(
          file, key, "is stored as " + std::string(dtype_name(dtype)) + ", expected F32, BF16, F16 or F64");
  }
}

DType dtype_of(const at::Tensor& tensor, const std::string& name) {
  if (tensor.scalar_type() == at::kFloat) return DType::kF32;
  APUS_CHECK(tensor.scalar_type() == at::kBFloat16, ConfigError, "save_adapter: ", name, " is ",
             c10::toString(tensor.scalar_type()), ", adapters are saved in Float or BFloat16");
  return DType::kBF16;
}

/// A stored tensor and the one it goes into, both checked.
struct Source {
  const TensorView* a = nullptr;
  const TensorView* b = nullptr;
};

/// Finds and checks the tensors of one adapter file against its configuration and the model.
class AdapterReader {
 public:
  AdapterReader(const SafetensorsFile& file, const LoraConfig& config)
      : file_(file), path_(file.path().string()), config_(config) {}

  Source read(const Projection& target) {
    const nn::LinearOptions& linear = target.linear->options();
    const std::string base = std::string(kKeyPrefix) + target.path;
    return {this->find(base + ".lora_A.weight", {config_.r, linear.in_features}, "[r, in]"),
            this->find(base + ".lora_B.weight", {linear.out_features, config_.r}, "[out, r]")};
  }

  void check_nothing_left() const {
    for (const TensorView& tensor : file_.tensors())
      if (!used_.contains(tensor.name))
        throw CheckpointError(path_, tensor.name,
                              "belongs to no target of " + std::string(kConfigName) +
                                  " on this model; the adapter is of another base model, or its files do not "
                                  "belong together");
  }

 private:
  const TensorView* find(const std::string& key, const std::vector<int64_t>& expected, const char* meaning) {
    const TensorView* found = file_.find(key);
    if (!found)
      throw CheckpointError(path_, key,
                            "is missing, although " + std::string(kConfigName) + " targets the module");
    if (found->shape != expected)
      throw CheckpointError(path_, key,
                            "has shape " + shape_text(found->shape) + ", expected " + shape_text(expected) +
                                " = " + meaning + ", with r = " + std::to_string(config_.r) + " from " +
                                std::string(kConfigName) +
                                " and the features of this model's module (adapter made for '" +
                                config_.base_model_name_or_path + "')");
    scalar_type_of(found->dtype, path_, key);
    used_.insert(key);
    return found;
  }

  const SafetensorsFile& file_;
  std::string path_;
  const LoraConfig& config_;
  std::set<std::string, std::less<>> used_;
};

void copy_into(at::Tensor& parameter, const TensorView& view) {
  // Through a buffer: mapped bytes need not be aligned.
  const at::Tensor stored =
      at::empty(parameter.sizes(), at::TensorOptions(scalar_type_of(view.dtype, "", view.name)));
  std::memcpy(stored.mutable_data_ptr(), view.data.data(), view.data.size());
  parameter.copy_(stored);
}

/// Both files must be there; a pickled adapter is refused with the way out.
void check_files(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / kConfigName))
    throw CheckpointError(
        (folder / kConfigName).string(), "",
        "there is no such file; an adapter folder holds it and " + std::string(kWeightsName));
  if (std::filesystem::exists(folder / kWeightsName)) return;
  APUS_CHECK(
      !std::filesystem::exists(folder / "adapter_model.bin"), NotSupported, folder.string(),
      "/adapter_model.bin is a pickle, which can run code and is never read; convert it with: python -c "
      "\"import torch, safetensors.torch as s; s.save_file(torch.load('adapter_model.bin', "
      "weights_only=True), '",
      kWeightsName, "', {'format': 'pt'})\"");
  throw CheckpointError((folder / kWeightsName).string(), "", "there is no such file");
}

/// The pair a module must have to be saved.
struct SavedPair {
  bool has_a = false;
  bool has_b = false;
};

/// "<path>" and 'A' or 'B' out of "<path>.lora_A.<name>.weight".
std::pair<std::string, char> split_name(const std::string& parameter, const std::string& adapter) {
  for (const char side : {'A', 'B'}) {
    const std::string tail = std::string(".lora_") + side + "." + adapter + ".weight";
    if (parameter.size() > tail.size() && parameter.ends_with(tail))
      return {parameter.substr(0, parameter.size() - tail.size()), side};
  }
  throw ConfigError("'" + parameter + "' is no tensor of adapter '" + adapter + "', expected <path>.lora_A." +
                    adapter + ".weight or lora_B");
}

void check_saved(const std::vector<nn::NamedParameter>& tensors, const LoraConfig& config,
                 const std::string& adapter_name) {
  APUS_CHECK(!tensors.empty(), ConfigError, "adapter '", adapter_name, "' has no tensors to save");
  std::map<std::string, SavedPair> pairs;
  for (const nn::NamedParameter& parameter : tensors) {
    const auto [path, side] = split_name(parameter.name, adapter_name);
    bool& seen = side == 'A' ? pairs[path].has_a : pairs[path].has_b;
    APUS_CHECK(!seen, ConfigError, "save_adapter: ", parameter.name, " is given twice");
    seen = true;
    APUS_CHECK(parameter.tensor.dim() == 2 && parameter.tensor.size(side == 'A' ? 0 : 1) == config.r,
               ConfigError, "save_adapter: ", parameter.name, " is ", parameter.tensor.sizes(), ", expected ",
               side == 'A' ? "[r, in]" : "[out, r]", " with r = ", config.r);
  }
  for (const auto& [path, pair] : pairs)
    APUS_CHECK(pair.has_a && pair.has_b, ConfigError, "save_adapter: ", path, " lacks its lora_",
               pair.has_a ? "B" : "A");
}

}  // namespace

LoadedAdapter load_adapter(const std::string& folder, nn::CausalLm& model, const std::string& name,
                           const LoadAdapterOptions& options) {
  const std::filesystem::path root(folder);
  check_files(root);
  ParsedLoraConfig parsed = parse_lora_config(read_file(root / kConfigName), (root / kConfigName).string());
  detail::Selection selection = detail::select_targets(model, parsed.config.targets);
  detail::check_new_name(detail::projections_of(model), name);
  const SafetensorsFile file(root / kWeightsName);
  AdapterReader reader(file, parsed.config);
  std::vector<Source> sources;
  for (const Projection& target : selection.targets) sources.push_back(reader.read(target));
  reader.check_nothing_left();

  LoadedAdapter loaded{.summary = {.name = name, .config = parsed.config, .modules = {}, .parameters = 0},
                       .warnings = std::move(parsed.warnings)};
  loaded.summary.config.targets = detail::resolve_targets(model, parsed.config.targets);
  for (std::string& message : selection.unmatched) loaded.warnings.push_back(std::move(message));
  const nn::LoraOptions lora{
      .rank = parsed.config.r, .alpha = parsed.config.lora_alpha, .use_rslora = parsed.config.use_rslora,
      .dropout = parsed.config.lora_dropout};
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Projection& target = selection.targets[i];
    nn::LoraAdapter& adapter = target.linear->add_adapter(name, lora, options.dtype);
    copy_into(adapter.a_RI, *sources[i].a);
    copy_into(adapter.b_OR, *sources[i].b);
    adapter.a_RI.requires_grad_(options.use == AdapterUse::kTrain);
    adapter.b_OR.requires_grad_(options.use == AdapterUse::kTrain);
    loaded.summary.modules.push_back(target.path);
    loaded.summary.parameters += adapter.a_RI.numel() + adapter.b_OR.numel();
  }
  return loaded;
}

std::string adapter_key(const std::string& parameter_name, const std::string& adapter_name) {
  const auto [path, side] = split_name(parameter_name, adapter_name);
  return std::string(kKeyPrefix) + path + ".lora_" + side + ".weight";
}

void save_adapter(const std::string& folder, const LoraConfig& config,
                  const std::vector<nn::NamedParameter>& tensors, const std::string& adapter_name) {
  check_saved(tensors, config, adapter_name);
  std::vector<at::Tensor> contiguous;  // keeps the bytes that the views show
  std::vector<TensorView> views;
  for (const nn::NamedParameter& parameter : tensors) {
    APUS_CHECK(parameter.tensor.device().is_cpu(), ConfigError, "save_adapter: ", parameter.name, " lies on ",
               parameter.tensor.device().str(), ", expected the CPU");
    const DType dtype = dtype_of(parameter.tensor, parameter.name);
    const at::Tensor& bytes = contiguous.emplace_back(parameter.tensor.detach().contiguous());
    views.push_back({.name = adapter_key(parameter.name, adapter_name),
                     .dtype = dtype,
                     .shape = bytes.sizes().vec(),
                     .data = {static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()}});
  }
  const std::filesystem::path root(folder);
  ensure_directory(root);
  write_safetensors(root / kWeightsName, views);
  write_file_atomic(root / kConfigName, write_lora_config(config));
}

}  // namespace apus::peft
