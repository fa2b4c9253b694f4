#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace apus::train {

/// A picture of 8-bit RGB, row by row.
struct PixelsView {
  int width = 0;
  int height = 0;
  /// 3 * width * height values.
  std::span<const uint8_t> rgb;
};

/// The picture as a PNG file.
/// Source:  Portable Network Graphics, second edition, sections 5 and 11.
std::string encode_png(const PixelsView& pixels);

}  // namespace apus::train
