#include "checkpoint/merge_adapter_layout.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

/// The file of each tensor.
std::map<std::string, std::string> files_of(const ShardedSafetensors& base) {
  std::map<std::string, std::string> files;
  const std::vector<std::string> shards = base.shards();
  if (shards.size() == 1) {
    for (const std::string& name : base.names()) files[name] = shards.front();
    return files;
  }
  const nlohmann::json index = load_json_file(base.folder() / kIndexName);
  for (const std::string& name : base.names())
    files[name] = index.at("weight_map").at(name).get<std::string>();
  return files;
}

/// The base's files, tensors in the order of their bytes.
std::vector<MergedFile> base_files(const ShardedSafetensors& base) {
  std::map<std::string, std::vector<const TensorView*>> views;
  for (const auto& [name, file] : files_of(base)) views[file].push_back(&base.at(name));
  std::vector<MergedFile> files;
  for (auto& [file, tensors] : views) {
    std::ranges::sort(tensors, {}, [](const TensorView* view) { return view->data.data(); });
    MergedFile& merged = files.emplace_back(MergedFile{.name = file, .tensors = {}});
    for (const TensorView* view : tensors)
      merged.tensors.push_back({.name = view->name, .dtype = view->dtype, .shape = view->shape});
  }
  return files;
}

/// Puts the tensor behind the one that it is like.
void insert_added(std::vector<MergedFile>& files, const peft::AddedTensor& added) {
  for (MergedFile& file : files) {
    const auto like = std::ranges::find(file.tensors, added.like, &TensorSpec::name);
    if (like == file.tensors.end()) continue;
    TensorSpec spec = *like;
    spec.name = added.name;
    file.tensors.insert(like + 1, std::move(spec));
    return;
  }
  APUS_ASSERT(false, "no file holds ", added.like, ", which ", added.name, " is like");
}

std::vector<MergedFile> cut(const std::vector<MergedFile>& files, int64_t max_bytes) {
  std::vector<MergedFile> shards;
  int64_t used = 0;
  for (const MergedFile& file : files) {
    for (const TensorSpec& tensor : file.tensors) {
      if (shards.empty() || used + byte_count(tensor) > max_bytes) {
        shards.emplace_back();
        used = 0;
      }
      used += byte_count(tensor);
      shards.back().tensors.push_back(tensor);
    }
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    shards[i].name = shards.size() == 1 ? kSingleName : name.data();
  }
  return shards;
}

}  // namespace

MergedLayout merged_layout(const ShardedSafetensors& base, const std::vector<peft::AddedTensor>& added,
                           std::optional<int64_t> max_shard_bytes) {
  APUS_CHECK(!max_shard_bytes || *max_shard_bytes >= 1, ConfigError,
             "merge: max_shard_bytes must be positive, it is ", *max_shard_bytes);
  MergedLayout layout{.files = base_files(base)};
  for (const peft::AddedTensor& tensor : added)
    if (!base.has(tensor.name)) insert_added(layout.files, tensor);
  if (max_shard_bytes) layout.files = cut(layout.files, *max_shard_bytes);
  for (const MergedFile& file : layout.files)
    for (const TensorSpec& tensor : file.tensors) layout.bytes += byte_count(tensor);
  layout.has_index = layout.files.size() > 1 || layout.files.front().name != kSingleName;
  return layout;
}

std::string index_text(const MergedLayout& layout) {
  nlohmann::json places = nlohmann::json::object();
  for (const MergedFile& file : layout.files)
    for (const TensorSpec& tensor : file.tensors) places[tensor.name] = file.name;
  return dump_json(nlohmann::json{{"metadata", {{"total_size", layout.bytes}}}, {"weight_map", places}},
                   {.indent = 2}) +
         "\n";
}

}  // namespace apus::checkpoint
