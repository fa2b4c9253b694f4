#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/safetensors.h"

namespace apus::peft::detail {

inline constexpr std::string_view kConfigName = "adapter_config.json";
inline constexpr std::string_view kWeightsName = "adapter_model.safetensors";
/// What stands before a module's path in the file.
inline constexpr std::string_view kKeyPrefix = "base_model.model.";

/// Throws unless an adapter's two files are there; a pickled adapter is refused with the way out.
void check_adapter_files(const std::filesystem::path& folder);

/// Throws CheckpointError naming file and tensor if it is not of a floating dtype that is taken.
at::ScalarType stored_scalar_type(const TensorView& view, const std::string& file);

/// A copy of a stored tensor, on the CPU.
at::Tensor read_stored(const TensorView& view, const std::string& file);

/// "[4, 6]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace apus::peft::detail
