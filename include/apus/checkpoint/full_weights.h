#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "apus/base/api.h"
#include "apus/parallel/sharded_model.h"

namespace apus::checkpoint {

/// How a sharded model's weights are written.
struct APUS_API FullWeightsOptions {
  /// The text of config.json; its dtype key becomes that of the weights.
  std::string config_json;
  /// Of floating parameters: masters are rounded to it once.
  at::ScalarType dtype = at::kFloat;
  /// A parameter's name in the files; unset = its own name.
  std::function<std::string(const std::string& parameter)> checkpoint_name = {};
  /// Folder of the model whose tokenizer, generation settings, templates and licences are copied; empty:
  /// none.
  std::filesystem::path companions = {};
  /// More is cut into files of at most this, or of one group of parameters.
  int64_t max_shard_bytes = 5'000'000'000;
};

/// Bytes that the weights will take on disk; equal on all ranks, no communication.
APUS_API int64_t full_weights_bytes(parallel::ShardedModel& model, const FullWeightsOptions& options);

/// Writes config.json and all parameters, trained and frozen ones, in Hugging Face layout into a folder that
/// exists: model.safetensors, or files and model.safetensors.index.json. Only rank 0 writes.
///
/// Collectives: where parameters or masters are cut over the ranks, one all_gather a group, of the parameters
/// where
///              their dtype is the wanted one, of the masters otherwise; none where they are whole. Every
///              rank calls it.
/// Memory:      beside the model one gathered group; on rank 0 also the tensors of one file.
/// Throws:      FileError on rank 0 after all ranks have taken part in every collective.
APUS_API void write_full_weights(const std::filesystem::path& folder, parallel::ShardedModel& model,
                                 const FullWeightsOptions& options);

}  // namespace apus::checkpoint
