#include <cstdio>
#include <regex>
#include <set>
#include <span>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/base/safetensors.h"
#include "apus/models/pretrained.h"
#include "apus/models/tensor_dtype.h"

namespace apus::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

using Shard = std::vector<nn::NamedParameter>;

int64_t bytes_of(const nn::NamedParameter& parameter) {
  return static_cast<int64_t>(parameter.tensor.nbytes());
}

/// Consecutive parameters, as many to a shard as fit.
std::vector<Shard> cut(const std::vector<nn::NamedParameter>& parameters, const SaveOptions& options) {
  std::vector<Shard> shards;
  int64_t used = 0;
  for (nn::NamedParameter parameter : parameters) {
    if (options.checkpoint_name) parameter.name = options.checkpoint_name(parameter.name);
    if (shards.empty() || used + bytes_of(parameter) > options.max_shard_bytes) {
      shards.emplace_back();
      used = 0;
    }
    used += bytes_of(parameter);
    shards.back().push_back(std::move(parameter));
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return kSingleName;
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

void write_shard(const fs::path& path, const Shard& shard) {
  std::vector<TensorSpec> specs;
  std::map<std::string_view, const at::Tensor*> tensors;
  for (const auto& [name, tensor] : shard) {
    specs.push_back(
        {.name = name, .dtype = stored_dtype(tensor.scalar_type()), .shape = tensor.sizes().vec()});
    tensors[name] = &tensor;
  }
  SafetensorsWriter writer(path, std::move(specs));
  const std::vector<TensorSpec> order = writer.order();
  for (const TensorSpec& spec : order) {
    const at::Tensor host = tensors.at(spec.name)->detach().cpu().contiguous();
    writer.write(spec.name, {static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
  writer.finish();
}

std::string index_json(const std::vector<Shard>& shards) {
  int64_t total = 0;
  nlohmann::json places = nlohmann::json::object();
  for (size_t i = 0; i < shards.size(); ++i)
    for (const nn::NamedParameter& parameter : shards[i]) {
      total += bytes_of(parameter);
      places[parameter.name] = shard_name(i, shards.size());
    }
  return dump_json(nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", places}},
                   {.indent = 2}) +
         "\n";
}

/// Removes weights of an earlier save: readers prefer the single file, and would find the old one.
void remove_stale(const fs::path& folder, const std::set<std::string>& written) {
  static const std::regex kWeights(R"(model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?)");
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (std::regex_match(name, kWeights) && !written.contains(name)) stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) fs::remove(path);
}

}  // namespace

void save_pretrained(const fs::path& folder, const std::string& config_json,
                     const std::vector<nn::NamedParameter>& parameters, const SaveOptions& options) {
  APUS_CHECK(!parameters.empty(), ConfigError, "save_pretrained: there are no parameters to save");
  APUS_CHECK(options.max_shard_bytes >= 1, ConfigError,
             "save_pretrained: max_shard_bytes must be positive, it is ", options.max_shard_bytes);
  parse_json(config_json, "config.json");
  ensure_directory(folder);
  const std::vector<Shard> shards = cut(parameters, options);
  std::set<std::string> written;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_shard(folder / name, shards[i]);
    written.insert(name);
  }
  if (shards.size() > 1) {
    write_file_atomic(folder / kIndexName, index_json(shards));
    written.insert(kIndexName);
  }
  write_file_atomic(folder / "config.json", config_json);
  remove_stale(folder, written);
}

}  // namespace apus::models
