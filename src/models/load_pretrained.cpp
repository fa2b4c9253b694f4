#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <set>

#include "apus/base/dtype.h"
#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"
#include "apus/base/sharded_safetensors.h"
#include "apus/models/pretrained.h"
#include "apus/models/rope_config.h"
#include "apus/models/tensor_dtype.h"

namespace apus::models {
namespace {

namespace fs = std::filesystem;
using Files = std::shared_ptr<const ShardedSafetensors>;

/// What messages give as the file: the only one, or the index that lists them.
std::string weights_name(const ShardedSafetensors& files) {
  const std::vector<std::string> shards = files.shards();
  return (files.folder() / (shards.size() == 1 ? shards.front() : "model.safetensors.index.json")).string();
}

std::string shape_text(at::IntArrayRef shape) {
  return detail::concat(shape);
}

/// A tensor over the mapped bytes; it keeps the mapping alive.
at::Tensor mapped_tensor(const Files& files, const TensorView& view, at::ScalarType type) {
  void* data = const_cast<std::byte*>(view.data.data());
  return at::from_blob(
      data, view.shape, [files](void*) {}, at::TensorOptions().dtype(type));
}

bool is_aligned(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data.data()) % static_cast<uintptr_t>(dtype_size(view.dtype)) == 0;
}

at::Tensor stored_tensor(const Files& files, const TensorView& view) {
  const at::ScalarType type = scalar_type(view.dtype);
  if (is_aligned(view)) return mapped_tensor(files, view, type);
  at::Tensor copy = at::empty(view.shape, type);
  std::memcpy(copy.mutable_data_ptr(), view.data.data(), view.data.size());
  return copy;
}

void check_dtype(const std::string& file, const TensorView& view) {
  const bool plain = is_floating_point(view.dtype) && dtype_size(view.dtype) >= 2;
  if (!plain)
    throw CheckpointError(file, view.name,
                          detail::concat("is stored as ", dtype_name(view.dtype),
                                         "; expected F32, BF16, F16 or F64 (quantised "
                                         "checkpoints are not supported)"));
}

void install(const Files& files, const std::string& stored_name, const nn::NamedParameter& parameter,
             Conversion conversion) {
  const std::string file = weights_name(*files);
  const TensorView* view = files->find(stored_name);
  const at::Tensor& tensor = parameter.tensor;
  if (!view)
    throw CheckpointError(file, stored_name,
                          "is missing; the model needs it with shape " + shape_text(tensor.sizes()) +
                              did_you_mean(stored_name, files->names()));
  if (tensor.sizes() != at::IntArrayRef(view->shape))
    throw CheckpointError(file, stored_name,
                          "has shape " + shape_text(view->shape) + ", the model needs " +
                              shape_text(tensor.sizes()) + ": does config.json belong to it?");
  check_dtype(file, *view);
  const bool trainable = tensor.requires_grad();
  const at::Tensor stored = stored_tensor(files, *view);
  tensor.set_data(conversion == Conversion::kNow ? stored.to(tensor.options().requires_grad(false)) : stored);
  tensor.set_requires_grad(trainable);
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  for (const std::string& pattern : patterns)
    if (nn::matches_path(pattern, name)) return true;
  return false;
}

void refuse_unknown_tensors(const ShardedSafetensors& files, const std::set<std::string>& known,
                            const std::vector<std::string>& redundant) {
  for (const std::string& name : files.names()) {
    if (known.contains(name) || matches_any(redundant, name)) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    throw CheckpointError(weights_name(files), name,
                          "is not a parameter of the model" + did_you_mean(name, names));
  }
}

void fill(const Files& files, const std::vector<nn::NamedParameter>& parameters,
          const LoadParametersOptions& options) {
  std::set<std::string> known;
  for (const nn::NamedParameter& parameter : parameters) {
    std::string stored = options.checkpoint_name ? options.checkpoint_name(parameter.name) : parameter.name;
    install(files, stored, parameter, options.conversion);
    known.insert(std::move(stored));
  }
  refuse_unknown_tensors(*files, known, options.redundant);
}

fs::path require_config(const fs::path& folder) {
  APUS_CHECK(fs::is_directory(folder), ConfigError, "model folder ", folder.string(),
             " does not exist or is no folder");
  fs::path config = folder / "config.json";
  APUS_CHECK(fs::is_regular_file(config), ConfigError, config.string(),
             " is missing: a model folder has config.json and model.safetensors (or its shards and "
             "model.safetensors.index.json)",
             fs::exists(folder / "adapter_config.json") ? "; this folder holds an adapter, not a model" : "");
  return config;
}

at::ScalarType stored_type(const ShardedSafetensors& files) {
  const std::vector<std::string> names = files.names();
  const TensorView* first = names.empty() ? nullptr : files.find(names.front());
  return first && is_floating_point(first->dtype) ? scalar_type(first->dtype) : at::kFloat;
}

}  // namespace

void load_parameters(const std::vector<nn::NamedParameter>& parameters, const fs::path& folder,
                     const LoadParametersOptions& options) {
  fill(std::make_shared<const ShardedSafetensors>(folder), parameters, options);
}

PretrainedModel load_pretrained(const fs::path& folder, const ModelRegistry& registry,
                                const LoadOptions& options) {
  const fs::path config_path = require_config(folder);
  const std::string source = config_path.string();
  PretrainedModel loaded;
  loaded.folder = folder;
  OverriddenConfig overridden =
      override_rope(read_file(config_path),
                    {.rope_scaling = options.rope_scaling, .max_model_len = options.max_model_len}, source);
  loaded.config_json = std::move(overridden.config_json);
  loaded.max_length = overridden.max_length;
  const nlohmann::json config = parse_json(loaded.config_json, source);
  const JsonView view(config, source);
  loaded.spec = registry.find(view.require<std::string>("model_type"));
  APUS_CHECK(
      !view.has("quantization_config"), NotSupported, source,
      ": quantization_config is present; quantised checkpoints are not supported, use the original weights");
  const std::optional<at::ScalarType> own = options.dtype ? options.dtype : config_dtype(config, source);
  const auto files = std::make_shared<const ShardedSafetensors>(folder);
  loaded.dtype = own ? *own : stored_type(*files);
  loaded.model = loaded.spec.build(
      config, {.dtype = loaded.dtype,
               .source = options.rope_scaling ? source + " with --rope_scaling" : source,
               .rope_length = options.rope_batch_length ? RopeLength::kBatch : RopeLength::kSequence,
               .max_length = options.max_model_len});
  const WeightMap& weights = loaded.spec.weights;
  fill(files, loaded.model->named_parameters(),
       {.checkpoint_name = weights.checkpoint_name,
        .redundant = weights.redundant ? weights.redundant(config) : std::vector<std::string>{},
        .conversion = options.conversion});
  return loaded;
}

TokenFlops PretrainedModel::token_flops(int64_t length) const {
  return spec.token_flops(parse_json(config_json, (folder / "config.json").string()), length);
}

}  // namespace apus::models
