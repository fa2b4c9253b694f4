#pragma once

#include <zlib.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace apus::train {

/// A picture as a reader of PNG files sees it.
struct DecodedPng {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;
};

inline uint32_t be32(std::string_view bytes) {
  uint32_t value = 0;
  for (const char c : bytes.substr(0, 4)) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

inline std::string inflated(const std::string& bytes, size_t size) {
  std::string out(size, '\0');
  uLongf got = out.size();
  if (::uncompress(reinterpret_cast<Bytef*>(out.data()), &got, reinterpret_cast<const Bytef*>(bytes.data()),
                   bytes.size()) != Z_OK ||
      got != size)
    throw std::runtime_error("the pixels cannot be inflated");
  return out;
}

/// Undoes filters 0 (none) and 1 (left) of 8-bit RGB.
inline std::vector<uint8_t> unfiltered(const std::string& rows, int width, int height) {
  const size_t row_bytes = static_cast<size_t>(width) * 3;
  std::vector<uint8_t> rgb;
  for (int y = 0; y < height; ++y) {
    const size_t start = static_cast<size_t>(y) * (row_bytes + 1);
    const int filter = rows[start];
    if (filter != 0 && filter != 1) throw std::runtime_error("a filter is not expected");
    for (size_t i = 0; i < row_bytes; ++i) {
      const uint8_t left = filter == 1 && i >= 3 ? rgb[rgb.size() - 3] : 0;
      rgb.push_back(static_cast<uint8_t>(rows[start + 1 + i] + left));
    }
  }
  return rgb;
}

/// Checks signature, chunks and their CRCs; takes 8-bit RGB without interlacing.
inline DecodedPng decode_png(std::string_view file) {
  if (!file.starts_with("\x89PNG\r\n\x1a\n")) throw std::runtime_error("no PNG");
  DecodedPng png;
  std::string data;
  for (file.remove_prefix(8); !file.empty();) {
    const uint32_t length = be32(file);
    const std::string_view checked = file.substr(4, length + 4), content = checked.substr(4);
    if (::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())) !=
        be32(file.substr(8 + length)))
      throw std::runtime_error("a chunk is damaged");
    if (checked.starts_with("IHDR")) {
      png.width = static_cast<int>(be32(content));
      png.height = static_cast<int>(be32(content.substr(4)));
      if (content.substr(8) != std::string_view("\x08\x02\x00\x00\x00", 5))
        throw std::runtime_error("no plain RGB");
    } else if (checked.starts_with("IDAT")) {
      data += content;
    }
    file.remove_prefix(12 + length);
  }
  png.rgb =
      unfiltered(inflated(data, (static_cast<size_t>(png.width) * 3 + 1) * static_cast<size_t>(png.height)),
                 png.width, png.height);
  return png;
}

}  // namespace apus::train
