#include "apus/peft/adapter_file.h"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/safetensors.h"
#include "peft/adapter_plan.h"
#include "peft/stored_tensor.h"

namespace apus::peft {
namespace {

using detail::kConfigName;
using detail::kKeyPrefix;
using detail::kWeightsName;

DType dtype_of(const at::Tensor& tensor, const std::string& name) {
  if (tensor.scalar_type() == at::kFloat) return DType::kF32;
  APUS_CHECK(tensor.scalar_type() == at::kBFloat16, ConfigError, "save_adapter: ", name, " is ",
             c10::toString(tensor.scalar_type()), ", adapters are saved in Float or BFloat16");
  return DType::kBF16;
}

/// What load_adapter expects of one stored tensor.
struct Expected {
  std::vector<int64_t> shape;
  std::string meaning;
};

/// Finds and checks the tensors of one adapter file against what the plan puts on the model.
class AdapterReader {
 public:
  AdapterReader(const SafetensorsFile& file, const LoraConfig& config)
      : file_(file), path_(file.path().string()), config_(config) {}

  void check_lora(const detail::PlannedLora& planned) {
    const nn::LinearOptions& linear = planned.target.linear->options();
    const std::string base = std::string(kKeyPrefix) + planned.target.path;
    const std::string rank = "with r = " + std::to_string(planned.options.rank) + " from " +
                             std::string(kConfigName) + " and the features of this model's module";
    this->check(base + ".lora_A.weight", {{planned.options.rank, linear.in_features}, "[r, in], " + rank});
    this->check(base + ".lora_B.weight", {{linear.out_features, planned.options.rank}, "[out, r], " + rank});
  }

  void check_copy(const detail::PlannedCopy& planned) {
    const bool of_base = planned.kind == nn::CopyKind::kBaseLayer;
    this->check(
        std::string(kKeyPrefix) + planned.path + (of_base ? ".base_layer." : ".") + planned.original.name,
        {planned.original.tensor.sizes().vec(),
         "the shape of this model's " + planned.path + "." + planned.original.name});
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
  void check(const std::string& key, const Expected& expected) {
    const TensorView* found = file_.find(key);
    if (!found)
      throw CheckpointError(path_, key,
                            "is missing, although " + std::string(kConfigName) + " names the module");
    if (found->shape != expected.shape)
      throw CheckpointError(path_, key,
                            "has shape " + detail::shape_text(found->shape) + ", expected " +
                                detail::shape_text(expected.shape) + " = " + expected.meaning +
                                " (adapter made for '" + config_.base_model_name_or_path + "')");
    detail::stored_scalar_type(*found, path_);
    used_.insert(key);
  }

  const SafetensorsFile& file_;
  std::string path_;
  const LoraConfig& config_;
  std::set<std::string, std::less<>> used_;
};

/// A full parameter name of an adapter, taken apart.
struct AdapterName {
  std::string path;  ///< of the module
  std::string part;  ///< "lora_A", "lora_B", "base_layer", "modules_to_save"
  std::string tail;  ///< the parameter in it: "weight", "bias"
};

/// Throws ConfigError if the name is not of this adapter.
AdapterName split_name(const std::string& parameter, const std::string& adapter) {
  const size_t dot = parameter.rfind('.');
  const std::string tail = dot == std::string::npos ? "" : parameter.substr(dot + 1);
  for (const char* part : {"lora_A", "lora_B", "base_layer", "modules_to_save"}) {
    const std::string end = std::string(".") + part + "." + adapter + "." + tail;
    if (!tail.empty() && parameter.size() > end.size() && parameter.ends_with(end))
      return {parameter.substr(0, parameter.size() - end.size()), part, tail};
  }
  throw ConfigError("'" + parameter + "' is no tensor of adapter '" + adapter + "', expected <path>.lora_A." +
                    adapter + ".weight, lora_B, base_layer or modules_to_save");
}

/// Checks A and B of what is saved: each with its other, of the configuration's rank.
class SavedPairs {
 public:
  explicit SavedPairs(const LoraConfig& config) : size_of_(lora_sizes(config)) {}

  void add(const AdapterName& name, const nn::NamedParameter& parameter) {
    const bool is_a = name.part == "lora_A";
    (is_a ? pairs_[name.path].has_a : pairs_[name.path].has_b) = true;
    const int64_t rank = size_of_(name.path).r;
    APUS_CHECK(parameter.tensor.dim() == 2 && parameter.tensor.size(is_a ? 0 : 1) == rank, ConfigError,
               "save_adapter: ", parameter.name, " is ", parameter.tensor.sizes(), ", expected ",
               is_a ? "[r, in]" : "[out, r]", " with r = ", rank);
  }

  void check_whole() const {
    for (const auto& [path, pair] : pairs_)
      APUS_CHECK(pair.has_a && pair.has_b, ConfigError, "save_adapter: ", path, " lacks its lora_",
                 pair.has_a ? "B" : "A");
  }

 private:
  struct Pair {
    bool has_a = false;
    bool has_b = false;
  };
  std::function<LoraSize(const std::string&)> size_of_;
  std::map<std::string, Pair> pairs_;
};

void check_saved(const std::vector<nn::NamedParameter>& tensors, const LoraConfig& config,
                 const std::string& adapter_name) {
  APUS_CHECK(!tensors.empty(), ConfigError, "adapter '", adapter_name, "' has no tensors to save");
  SavedPairs pairs(config);
  std::set<std::string> seen;
  bool has_module = false;
  for (const nn::NamedParameter& parameter : tensors) {
    APUS_CHECK(seen.insert(parameter.name).second, ConfigError, "save_adapter: ", parameter.name,
               " is given twice");
    const AdapterName name = split_name(parameter.name, adapter_name);
    if (name.part.starts_with("lora_")) pairs.add(name, parameter);
    has_module |= name.part == "modules_to_save" && !(config.bias == LoraBias::kAll && name.tail == "bias");
    APUS_CHECK(name.part != "base_layer" || config.bias != LoraBias::kNone, ConfigError,
               "save_adapter: ", parameter.name, " is a trained bias, but the configuration's bias is none");
  }
  pairs.check_whole();
  APUS_CHECK(has_module == !config.modules_to_save.empty(), ConfigError, "save_adapter: the tensors hold ",
             has_module ? "a module that is trained whole" : "no module that is trained whole",
             ", but modules_to_save of the configuration is ", has_module ? "empty" : "not");
}

}  // namespace

LoadedAdapter load_adapter(const std::string& folder, nn::CausalLm& model, const std::string& name,
                           const LoadAdapterOptions& options) {
  const std::filesystem::path root(folder);
  detail::check_adapter_files(root);
  ParsedLoraConfig parsed = parse_lora_config(read_file(root / kConfigName), (root / kConfigName).string());
  detail::AdapterPlan plan = detail::plan_adapter(model, parsed.config, name);
  const SafetensorsFile file(root / kWeightsName);
  AdapterReader reader(file, parsed.config);
  for (const detail::PlannedLora& planned : plan.loras) reader.check_lora(planned);
  for (const detail::PlannedCopy& planned : plan.copies) reader.check_copy(planned);
  reader.check_nothing_left();

  LoadedAdapter loaded{.warnings = std::move(parsed.warnings)};
  for (std::string& message : plan.unmatched) loaded.warnings.push_back(std::move(message));
  loaded.summary = detail::build_adapter(
      plan, name, {.dtype = options.dtype, .use = options.use}, [&](detail::NewParameter& parameter) {
        parameter.tensor.copy_(
            detail::read_stored(file.at(adapter_key(parameter.name, name)), file.path().string()));
      });
  return loaded;
}

std::string adapter_key(const std::string& parameter_name, const std::string& adapter_name) {
  const AdapterName name = split_name(parameter_name, adapter_name);
  const std::string part = name.part == "modules_to_save" ? "" : "." + name.part;
  return std::string(kKeyPrefix) + name.path + part + "." + name.tail;
}

void save_adapter(const std::string& folder, const LoraConfig& config,
                  const std::vector<nn::NamedParameter>& tensors, const std::string& adapter_name) {
  check_saved(tensors, config, adapter_name);
  std::vector<at::Tensor> contiguous;  // keeps the bytes that the views show
  std::vector<TensorView> views;
  for (const nn::NamedParameter& parameter : tensors) {
    const DType dtype = dtype_of(parameter.tensor, parameter.name);
    const at::Tensor& bytes = contiguous.emplace_back(parameter.tensor.detach().cpu().contiguous());
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
