#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus {
class Logger;
}

namespace apus::checkpoint {

/// How much of a merged model is computed a second time from base and adapter. Every tensor's bytes are read
/// back and their hashes compared either way.
enum class MergeCheck {
  kSample,  ///< a few of the merged tensors, spread over the model
  kAll,     ///< all merged tensors; takes as long as the merge
};

/// A merge of an adapter into its base.
struct APUS_API MergeOptions {
  /// The base: a folder in Hugging Face layout.
  std::filesystem::path base;
  /// A folder with adapter_config.json and adapter_model.safetensors.
  std::filesystem::path adapter;
  /// The folder to be made.
  std::filesystem::path target;
  /// An earlier model in `target` is replaced, once the new one is whole.
  bool overwrite = false;
  /// Where given, weights are cut anew into files of at most this, or of one tensor; else the base's files
  /// are kept, tensor by tensor.
  std::optional<int64_t> max_shard_bytes = {};
  MergeCheck check = MergeCheck::kSample;
  /// What --rope_scaling and --max_model_len said in training: worked into config.json, so that the merged
  /// model computes what was trained. Empty: the base's.
  std::string rope_scaling = {};
  std::optional<int64_t> max_model_len = {};
  /// Bytes that can still be written to a folder; absent: what the file system says.
  std::function<int64_t(const std::filesystem::path&)> free_space = nullptr;
};

/// What was merged.
struct APUS_API MergeReport {
  /// The folder that was made.
  std::filesystem::path target;
  /// Tensors of the new model, those of them that the adapter changed, and those that were computed twice.
  int64_t tensors = 0;
  int64_t merged = 0;
  int64_t checked = 0;
  /// Of the weights.
  int64_t bytes = 0;
  /// Names of the weight files.
  std::vector<std::string> files;
  /// Worth telling the user.
  std::vector<std::string> notes;
};

/// Merges an adapter into its base and writes a complete Hugging Face model: weights (and their index),
/// config.json, generation_config.json, tokenizer files and chat template. Tokenizer files that lie beside
/// the adapter go before the base's: they are what it was trained with.
///
/// Maths:   per tensor as peft::AdapterMerge, in fp32, rounded once to the base's dtype; all else is copied
/// byte for
///          byte.
/// Memory:  one tensor of the base and what its merge takes, whatever the size of the model (files are
/// mapped). Atomic:  written into "TARGET.partial", every file synced, read back and compared, then renamed:
/// TARGET is the old
///          folder or the new one, and whole. One process writes a target at a time.
/// Throws:  ConfigError if the target exists (without overwrite), is no model's folder (with it), or lies
/// around the
///          base or the adapter, or if another process is at it; NotSupported for a quantised base;
///          CheckpointError where files do not fit together, space is short (with both numbers), or what was
///          read back is not what was written; FileError from the disk.
APUS_API MergeReport merge_adapter(const MergeOptions& options, Logger& logger);

/// What was merged, in two lines for people; the last is the folder.
APUS_API std::string merge_text(const MergeReport& report);

}  // namespace apus::checkpoint
