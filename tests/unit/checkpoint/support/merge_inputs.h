#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "apus/base/safetensors.h"

namespace apus::checkpoint {

/// Tensors of a file or folder as floats, by name.
using FloatTensors = std::map<std::string, std::vector<float>>;

/// The tiny qwen2 of cases/lora, its adapter of rank 8 and alpha 16.
inline const std::filesystem::path kLoraBase = APUS_SOURCE_DIR "/tests/data/cases/lora/base";
inline const std::filesystem::path kLoraAdapter = APUS_SOURCE_DIR "/tests/data/cases/lora/plain/adapter";
inline constexpr float kLoraScaling = 2.0f;

/// All tensors of a safetensors file.
FloatTensors floats_of(const std::filesystem::path& file);
/// All tensors of a model's folder.
FloatTensors model_floats(const std::filesystem::path& folder);

/// base + scaling * B A for every target, by three loops; `adapter` as in adapter_model.safetensors.
FloatTensors merged_by_hand(FloatTensors base, const FloatTensors& adapter, float scaling, int64_t rank);

/// Copies the base into the folder, its weights as bf16.
void write_bf16_base(const std::filesystem::path& folder);

/// A tensor of floats to be written.
struct FloatTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};
/// Writes them in fp32.
void write_floats(const std::filesystem::path& file, const std::vector<FloatTensor>& tensors);

}  // namespace apus::checkpoint
