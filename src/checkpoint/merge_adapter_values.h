#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "apus/base/safetensors.h"
#include "apus/base/sharded_safetensors.h"
#include "apus/peft/merge.h"
#include "checkpoint/merge_adapter_layout.h"

namespace apus::checkpoint {

/// The tensors of a merged model, one at a time.
class MergedValues final {
 public:
  /// Both outlive this object.
  MergedValues(const ShardedSafetensors& base, const peft::AdapterMerge& merge);

  /// Whether it is computed; otherwise it is the base's, byte for byte.
  bool is_merged(const std::string& name) const { return sources_.contains(name); }
  /// Names of all that are computed.
  std::vector<std::string> merged_names() const;
  /// Computes one.
  at::Tensor merged(const std::string& name) const;
  /// The base's bytes.
  const TensorView& stored(const std::string& name) const { return base_.at(name); }

 private:
  const ShardedSafetensors& base_;
  const peft::AdapterMerge& merge_;
  /// Merged tensor to the base tensor that it starts from.
  std::map<std::string, std::string> sources_;
};

/// XXH64 of each tensor's bytes.
using TensorHashes = std::map<std::string, uint64_t>;

/// Writes a weight file, tensor by tensor, and returns what it should hold.
/// Throws: FileError, CheckpointError.
TensorHashes write_merged_file(const std::filesystem::path& folder, const MergedFile& file,
                               const MergedValues& values);

/// Reads a written file back from the disk and compares every tensor's type, shape and hash; those in
/// `recomputed` also with a second computation. Returns how many of these were in the file. Throws:
/// CheckpointError naming file and tensor.
int64_t check_merged_file(const std::filesystem::path& folder, const MergedFile& file,
                          const MergedValues& values, const TensorHashes& hashes,
                          const std::set<std::string>& recomputed);

}  // namespace apus::checkpoint
