#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/safetensors.h"
#include "apus/base/sharded_safetensors.h"
#include "apus/peft/merge.h"

namespace apus::checkpoint {

/// One weight file of a merged model.
struct MergedFile {
  std::string name;
  std::vector<TensorSpec> tensors;
};

/// All of them.
struct MergedLayout {
  std::vector<MergedFile> files;
  /// Of the tensors.
  int64_t bytes = 0;
  /// Whether an index lists them; a single model.safetensors needs none.
  bool has_index = false;
};

/// The base's files with its tensors and the added ones, these beside the tensor that they are like; cut anew
/// where a bound is given, in the base's order.
MergedLayout merged_layout(const ShardedSafetensors& base, const std::vector<peft::AddedTensor>& added,
                           std::optional<int64_t> max_shard_bytes);

/// The text of model.safetensors.index.json.
std::string index_text(const MergedLayout& layout);

}  // namespace apus::checkpoint
