#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/safetensors.h"

namespace apus {

/// Which files of a folder hold the weights.
struct ShardedSafetensorsOptions {
  /// "model" reads model.safetensors, or the shards of model.safetensors.index.json.
  std::string stem = "model";
};

/// The weights of a folder in Hugging Face layout, one file or many; files are mapped when first asked for.
/// Thread-safe. The index is untrusted: shards must lie in the folder itself.
/// Throws:      CheckpointError naming the file or shard that is missing, broken or lacks a listed tensor;
///              a folder with only pickled weights is refused with the command that converts them.
class APUS_API ShardedSafetensors final {
 public:
  /// Reads the index, or the header of the single file, and checks that every shard exists.
  explicit ShardedSafetensors(std::filesystem::path folder, ShardedSafetensorsOptions options = {});

  /// All tensor names, sorted.
  std::vector<std::string> names() const;
  /// Whether the folder lists the tensor; opens nothing.
  bool has(std::string_view name) const;
  /// The tensor, or null if the folder lists none of that name.
  const TensorView* find(std::string_view name) const;
  /// The tensor.
  /// Throws:      CheckpointError naming the nearest name.
  const TensorView& at(std::string_view name) const;
  /// File names of the shards, sorted.
  std::vector<std::string> shards() const;
  /// The folder as it was given.
  const std::filesystem::path& folder() const { return folder_; }

 private:
  const SafetensorsFile& open(const std::string& shard) const;
  void read_index(const std::filesystem::path& index);

  std::filesystem::path folder_;
  /// Tensor name to shard file name.
  std::map<std::string, std::string, std::less<>> shard_of_;
  std::filesystem::path listed_in_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<SafetensorsFile>> open_;
};

}  // namespace apus
