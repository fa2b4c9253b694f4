#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/safetensors.h"

namespace apus::detail {

// One entry of a safetensors header as it was written, not yet checked against the data.
struct SafetensorsEntry {
  TensorSpec spec;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Reads the JSON of a header; throws CheckpointError naming `source` and the tensor.
SafetensorsHeader read_safetensors_header(std::string_view json, const std::string& source);

// The JSON of a header for tensors stored back to back in the given order, padded to 8 bytes.
std::string write_safetensors_header(const std::vector<TensorSpec>& specs,
                                     const std::map<std::string, std::string>& metadata);

}  // namespace apus::detail
