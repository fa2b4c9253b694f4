#include "apus/peft/merge.h"

#include <ATen/ops/mm.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/nearest_name.h"
#include "apus/base/safetensors.h"
#include "peft/name_pattern.h"
#include "peft/stored_tensor.h"

namespace apus::peft {
namespace {

using detail::kConfigName;
using detail::kKeyPrefix;
using detail::kWeightsName;

constexpr const char* kHead = "lm_head.weight";
constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight",
                           kBaseBias = ".base_layer.bias";

/// What an adapter does to one tensor.
struct Change {
  const TensorView* a = nullptr;  ///< with b: W + scaling * B A
  const TensorView* b = nullptr;
  const TensorView* replacement = nullptr;
  double scaling = 0.0;
};

std::string module_of(const std::string& tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? "" : tensor.substr(0, dot);
}

bool is_bias(const std::string& name) {
  return name.ends_with(".bias");
}

}  // namespace

struct AdapterMerge::Plan {
  Plan(const std::filesystem::path& folder, const MergeBase& base_model)
      : file((detail::check_adapter_files(folder), folder / kWeightsName)), base(base_model) {
    const std::filesystem::path config_file = folder / kConfigName;
    parsed = parse_lora_config(read_file(config_file), config_file.string());
    size_of = lora_sizes(parsed.config);
    for (const TensorView& tensor : file.tensors()) this->place(tensor);
    this->check_nothing_missing();
    this->untie();
    for (const auto& [name, change] : changes)
      if (base.shapes.contains(name)) touched.push_back(name);
  }

  [[noreturn]] void fail(const std::string& key, const std::string& reason) const {
    throw CheckpointError(file.path().string(), key, reason);
  }

  /// The shape of a base tensor; a tied head has the embedding's.
  const std::vector<int64_t>& base_shape(const std::string& name, const std::string& key) const {
    const auto found = base.shapes.find(name == kHead && base.tied_head ? this->tied_embedding(key) : name);
    if (found != base.shapes.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, shape] : base.shapes) names.push_back(known);
    this->fail(key, "touches '" + name + "', which the base does not have" + did_you_mean(name, names) +
                        "; the adapter is of another base model");
  }

  /// The tensor that a tied head shares.
  std::string tied_embedding(const std::string& key) const {
    for (const auto& [name, shape] : base.shapes)
      if (detail::names_module(name, "embed_tokens.weight")) return name;
    this->fail(key, "trains a tied head, and the base has no tensor embed_tokens.weight");
  }

  void check_shape(const TensorView& tensor, const std::vector<int64_t>& expected,
                   const std::string& why) const {
    detail::stored_scalar_type(tensor, file.path().string());
    if (tensor.shape != expected)
      this->fail(tensor.name, "has shape " + detail::shape_text(tensor.shape) + ", expected " +
                                  detail::shape_text(expected) + ", " + why);
  }

  /// Finds what a stored tensor changes.
  void place(const TensorView& tensor) {
    const std::string& key = tensor.name;
    if (!key.starts_with(kKeyPrefix))
      this->fail(key, "is no adapter's tensor, expected " + std::string(kKeyPrefix) + "<path>");
    const std::string rest = key.substr(kKeyPrefix.size());
    const auto cut = [&](std::string_view tail) { return rest.substr(0, rest.size() - tail.size()); };
    if (rest.ends_with(kLoraA)) return this->place_lora(tensor, cut(kLoraA), true);
    if (rest.ends_with(kLoraB)) return this->place_lora(tensor, cut(kLoraB), false);
    const bool of_target = rest.ends_with(kBaseBias);
    const std::string name = of_target ? cut(kBaseBias) + ".bias" : rest;
    const bool as_bias = is_bias(name) && (parsed.config.bias == LoraBias::kAll ||
                                           (of_target && parsed.config.bias == LoraBias::kLoraOnly));
    if (!as_bias && (of_target || !detail::is_saved(module_of(name), parsed.config.modules_to_save)))
      this->fail(key, "belongs to nothing that " + std::string(kConfigName) +
                          " names; the adapter's files do not belong together");
    this->check_shape(tensor, this->base_shape(name, key), "that of the base's " + name);
    changes[name].replacement = &tensor;
  }

  void place_lora(const TensorView& tensor, const std::string& path, bool is_a) {
    const std::string name = path + ".weight";
    const std::vector<int64_t>& shape = this->base_shape(name, tensor.name);
    if (shape.size() != 2) this->fail(tensor.name, "adapts '" + name + "', which is no matrix");
    const LoraSize size = size_of(path);
    this->check_shape(tensor,
                      is_a ? std::vector<int64_t>{size.r, shape[1]} : std::vector<int64_t>{shape[0], size.r},
                      "with r = " + std::to_string(size.r) + " from " + std::string(kConfigName) +
                          " and the base's " + name);
    Change& change = changes[name];
    (is_a ? change.a : change.b) = &tensor;
    change.scaling = size.scaling;
  }

  void check_nothing_missing() const {
    const LoraConfig& config = parsed.config;
    const auto is_target = lora_matcher(config);
    for (const auto& [name, change] : changes)
      if (!change.replacement && !(change.a && change.b))
        this->fail(std::string(kKeyPrefix) + module_of(name) + std::string(change.a ? kLoraB : kLoraA),
                   "is missing, although its other half is there");
    for (const auto& [name, shape] : base.shapes) {
      const std::string path = module_of(name);
      const bool matrix = name == path + ".weight" && shape.size() == 2;
      // "all-linear" as a word does not say which matrices are projections.
      const bool target = !config.targets.all_linear && is_target(path);
      const bool bias =
          is_bias(name) && (config.bias == LoraBias::kAll || (config.bias == LoraBias::kLoraOnly && target));
      const bool tied = name == kHead && base.tied_head;
      const bool saved = detail::is_saved(path, config.modules_to_save) && !tied;
      if (((matrix && target) || bias || saved) && !changes.contains(name))
        this->fail(std::string(kKeyPrefix) + name,
                   "or its adapter is missing, although " + std::string(kConfigName) + " names the module");
    }
  }

  /// A tied head whose tensor or embedding was trained by itself becomes a tensor of its own.
  void untie() {
    if (!base.tied_head) return;
    const bool head = changes.contains(kHead);
    const bool embedding = std::any_of(changes.begin(), changes.end(), [](const auto& change) {
      return detail::names_module(change.first, "embed_tokens.weight");
    });
    unties = head || embedding;
    if (unties && !base.shapes.contains(kHead)) added.push_back({kHead, this->tied_embedding(kHead)});
  }

  SafetensorsFile file;
  MergeBase base;
  ParsedLoraConfig parsed;
  std::function<LoraSize(const std::string&)> size_of;
  std::map<std::string, Change> changes;
  std::vector<std::string> touched;
  std::vector<AddedTensor> added;
  bool unties = false;
};

AdapterMerge::AdapterMerge(const std::filesystem::path& folder, const MergeBase& base)
    : plan_(std::make_unique<Plan>(folder, base)) {}
AdapterMerge::~AdapterMerge() = default;
AdapterMerge::AdapterMerge(AdapterMerge&&) noexcept = default;
AdapterMerge& AdapterMerge::operator=(AdapterMerge&&) noexcept = default;

const LoraConfig& AdapterMerge::config() const {
  return plan_->parsed.config;
}
const std::vector<std::string>& AdapterMerge::warnings() const {
  return plan_->parsed.warnings;
}
const std::vector<std::string>& AdapterMerge::touched() const {
  return plan_->touched;
}
const std::vector<AddedTensor>& AdapterMerge::added() const {
  return plan_->added;
}
bool AdapterMerge::unties_head() const {
  return plan_->unties;
}

at::Tensor AdapterMerge::merged(const std::string& name, const at::Tensor& base) const {
  const auto& added = plan_->added;
  const auto extra = std::find_if(added.begin(), added.end(),
                                  [&](const AddedTensor& tensor) { return tensor.name == name; });
  const auto declared = plan_->base.shapes.find(extra == added.end() ? name : extra->like);
  APUS_CHECK(declared != plan_->base.shapes.end(), ConfigError, "the merged model has no tensor '", name,
             "'");
  APUS_CHECK(base.sizes() == at::IntArrayRef(declared->second), ShapeError, "merge: ", name, " is ",
             base.sizes(), ", declared was ", at::IntArrayRef(declared->second));
  const auto found = plan_->changes.find(name);
  if (found == plan_->changes.end()) return base.clone();
  const std::string file = plan_->file.path().string();
  const Change& change = found->second;
  if (change.replacement) return detail::read_stored(*change.replacement, file).to(base.scalar_type());
  const at::ScalarType wide = base.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor b_OR = detail::read_stored(*change.b, file).to(wide);
  const at::Tensor a_RI = detail::read_stored(*change.a, file).to(wide);
  return at::mm(b_OR, a_RI).mul_(change.scaling).add_(base.to(wide)).to(base.scalar_type());
}

}  // namespace apus::peft
