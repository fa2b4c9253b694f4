#include "train/png.h"

#include <zlib.h>

#include "apus/base/error.h"

namespace apus::train {
namespace {

constexpr uint8_t kBitDepth = 8, kColourRgb = 2, kFilterSub = 1;
constexpr int kChannels = 3;

void put_be32(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
}

/// Length, type, content, CRC over type and content.
void put_chunk(std::string& png, const char* type, const std::string& content) {
  put_be32(png, static_cast<uint32_t>(content.size()));
  const std::string checked = type + content;
  png += checked;
  const auto* bytes = reinterpret_cast<const Bytef*>(checked.data());
  put_be32(png, static_cast<uint32_t>(::crc32(0, bytes, static_cast<uInt>(checked.size()))));
}

std::string header_of(const PixelsView& pixels) {
  std::string header;
  put_be32(header, static_cast<uint32_t>(pixels.width));
  put_be32(header, static_cast<uint32_t>(pixels.height));
  header += static_cast<char>(kBitDepth);
  header += static_cast<char>(kColourRgb);
  return header.append(3, '\0');  // the only compression, the only filter set, not interlaced
}

/// Each row as the differences to the pixel on the left, which makes surfaces of one colour zeros.
std::string filtered(const PixelsView& pixels) {
  const size_t row_bytes = static_cast<size_t>(pixels.width) * kChannels;
  std::string rows;
  rows.reserve((row_bytes + 1) * static_cast<size_t>(pixels.height));
  for (int y = 0; y < pixels.height; ++y) {
    const auto row = pixels.rgb.subspan(static_cast<size_t>(y) * row_bytes, row_bytes);
    rows += static_cast<char>(kFilterSub);
    for (size_t i = 0; i < row_bytes; ++i)
      rows += static_cast<char>(row[i] - (i < kChannels ? 0 : row[i - kChannels]));
  }
  return rows;
}

std::string deflated(const std::string& bytes) {
  uLongf size = ::compressBound(static_cast<uLong>(bytes.size()));
  std::string out(size, '\0');
  const int code =
      ::compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                  static_cast<uLong>(bytes.size()), 6);
  APUS_ASSERT(code == Z_OK, "zlib's compress2 gave ", code);
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(const PixelsView& pixels) {
  APUS_ASSERT(
      pixels.rgb.size() == static_cast<size_t>(pixels.width) * static_cast<size_t>(pixels.height) * kChannels,
      "a picture of ", pixels.width, " x ", pixels.height, " has ", pixels.rgb.size(), " values");
  std::string png = "\x89PNG\r\n\x1A\n";
  put_chunk(png, "IHDR", header_of(pixels));
  put_chunk(png, "IDAT", deflated(filtered(pixels)));
  put_chunk(png, "IEND", "");
  return png;
}

}  // namespace apus::train
