#include "apus/base/sharded_safetensors.h"

#include <set>
#include <system_error>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"

namespace apus {
namespace {

// The index is untrusted: a shard is a plain file name, never a way out of the folder.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

[[noreturn]] void fail_without_weights(const std::filesystem::path& folder, const std::string& stem) {
  const std::string wanted = stem + ".safetensors or " + stem + ".safetensors.index.json";
  for (const char* pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin"}) {
    if (!is_there(folder / pickled)) continue;
    const std::string loader = stem == "model" ? "import transformers as t; t.AutoModelForCausalLM"
                                               : "import peft as t; t.AutoPeftModelForCausalLM";
    throw CheckpointError(
        (folder / pickled).string(), "",
        detail::concat("is a pickle, which can run code and is not read; convert it once with: "
                       "python3 -c \"",
                       loader, ".from_pretrained('", folder.string(),
                       "', torch_dtype='auto').save_pretrained('", folder.string(), "')\""));
  }
  throw CheckpointError(
      folder.string(), "",
      (is_there(folder) ? "holds no weights: expected " : "does not exist; expected a folder with ") +
          wanted);
}

}  // namespace

ShardedSafetensors::ShardedSafetensors(std::filesystem::path folder, ShardedSafetensorsOptions options)
    : folder_(std::move(folder)) {
  const std::string single = options.stem + ".safetensors";
  const std::filesystem::path index = folder_ / (single + ".index.json");
  if (is_there(folder_ / single)) {
    listed_in_ = folder_ / single;
    for (const TensorView& tensor : open(single).tensors()) shard_of_.emplace(tensor.name, single);
  } else if (is_there(index)) {
    read_index(index);
  } else {
    fail_without_weights(folder_, options.stem);
  }
}

void ShardedSafetensors::read_index(const std::filesystem::path& index) {
  listed_in_ = index;
  nlohmann::json document;
  try {
    document = load_json_file(index);
  } catch (const DataError& error) {
    throw CheckpointError(index.string(), "", error.reason());
  }
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  if (map == document.end() || !map->is_object()) {
    throw CheckpointError(index.string(), "", "has no object 'weight_map'");
  }
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string()) throw CheckpointError(index.string(), name, "its shard is no string");
    const auto file = shard.get<std::string>();
    if (!is_plain_file_name(file)) {
      throw CheckpointError(index.string(), name,
                            "its shard '" + file + "' is not a file of the folder itself");
    }
    shard_of_.emplace(name, file);
  }
  for (const std::string& shard : shards()) {
    if (!is_there(folder_ / shard)) {
      throw CheckpointError((folder_ / shard).string(), "",
                            "is missing; " + index.filename().string() + " lists it: download or copy it");
    }
  }
}

std::vector<std::string> ShardedSafetensors::names() const {
  std::vector<std::string> out;
  out.reserve(shard_of_.size());
  for (const auto& [name, shard] : shard_of_) out.push_back(name);
  return out;
}

bool ShardedSafetensors::has(std::string_view name) const {
  return shard_of_.contains(name);
}

const TensorView* ShardedSafetensors::find(std::string_view name) const {
  const auto entry = shard_of_.find(name);
  if (entry == shard_of_.end()) return nullptr;
  const TensorView* tensor = open(entry->second).find(name);
  if (tensor == nullptr) {
    throw CheckpointError((folder_ / entry->second).string(), std::string(name),
                          "is not in the file, though " + listed_in_.filename().string() + " says so");
  }
  return tensor;
}

const TensorView& ShardedSafetensors::at(std::string_view name) const {
  if (const TensorView* tensor = find(name)) return *tensor;
  throw CheckpointError(listed_in_.string(), std::string(name),
                        "is not listed" + did_you_mean(name, names()));
}

std::vector<std::string> ShardedSafetensors::shards() const {
  std::set<std::string> unique;
  for (const auto& [name, shard] : shard_of_) unique.insert(shard);
  return {unique.begin(), unique.end()};
}

const SafetensorsFile& ShardedSafetensors::open(const std::string& shard) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<SafetensorsFile>& file = open_[shard];
  if (!file) file = std::make_unique<SafetensorsFile>(folder_ / shard);
  return *file;
}

}  // namespace apus
