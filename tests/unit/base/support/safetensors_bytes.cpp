#include "tests/unit/base/support/safetensors_bytes.h"

#include <cstring>

#include "apus/base/error.h"

namespace apus {

std::string safetensors_bytes(std::string_view header, std::size_t data_bytes) {
  std::string out(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  out += header;
  for (std::size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i);
  return out;
}

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape, uint64_t begin,
                  uint64_t end) {
  return detail::concat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":[",
                        begin, ",", end, "]}");
}

}  // namespace apus
