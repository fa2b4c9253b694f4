#include "train/png.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/unit/train/support/png_reader.h"

namespace apus::train {
namespace {

TEST(Png, KeepsEveryPixel) {
  std::vector<uint8_t> rgb;
  for (int i = 0; i < 7 * 5 * 3; ++i) rgb.push_back(static_cast<uint8_t>(i * 37));
  const DecodedPng png = decode_png(encode_png({.width = 7, .height = 5, .rgb = rgb}));
  EXPECT_EQ(png.width, 7);
  EXPECT_EQ(png.height, 5);
  EXPECT_EQ(png.rgb, rgb);
}

TEST(Png, IsSmallWhereThePictureIsPlain) {
  const std::vector<uint8_t> white(size_t{960} * 400 * 3, 255);
  EXPECT_LT(encode_png({.width = 960, .height = 400, .rgb = white}).size(), 4000u);
}

TEST(Png, RefusesAPictureOfAnotherSize) {
  const std::vector<uint8_t> rgb(11, 0);
  EXPECT_THROW(encode_png({.width = 2, .height = 2, .rgb = rgb}), Error);
}

}  // namespace
}  // namespace apus::train
