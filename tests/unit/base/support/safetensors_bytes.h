#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace apus {

// The bytes of a safetensors file with this header, whatever it says, and `data_bytes` bytes of data.
std::string safetensors_bytes(std::string_view header, std::size_t data_bytes);

// A header entry, e.g. entry("w", "F32", "[2]", 0, 8) = "w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}
std::string entry(std::string_view name, std::string_view dtype, std::string_view shape, uint64_t begin,
                  uint64_t end);

}  // namespace apus
