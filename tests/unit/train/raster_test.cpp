#include "train/raster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace apus::train {
namespace {

constexpr Colour kWhite{255, 255, 255}, kBlack{0, 0, 0};

int dark_pixels(const Canvas& canvas) {
  int count = 0;
  for (int y = 0; y < canvas.height(); ++y)
    for (int x = 0; x < canvas.width(); ++x) count += canvas.at(x, y) == kBlack;
  return count;
}

TEST(Canvas, IsWhiteAtFirst) {
  const Canvas canvas(3, 2);
  EXPECT_EQ(canvas.rgb().size(), 18u);
  EXPECT_EQ(canvas.at(2, 1), kWhite);
}

TEST(Canvas, DrawsALineOfTheGivenWidth) {
  Canvas canvas(20, 20);
  canvas.line({2, 10}, {17, 10}, {.colour = kBlack, .width = 3});
  EXPECT_EQ(canvas.at(10, 9), kBlack);
  EXPECT_EQ(canvas.at(10, 11), kBlack);
  EXPECT_EQ(canvas.at(10, 13), kWhite);
  EXPECT_EQ(canvas.at(10, 7), kWhite);
}

TEST(Canvas, SmoothsTheEdgesOfALine) {
  Canvas canvas(20, 20);
  canvas.line({0, 0}, {19, 9}, {.colour = kBlack, .width = 2});
  int grey = 0;
  for (int y = 0; y < 20; ++y)
    for (int x = 0; x < 20; ++x) grey += canvas.at(x, y) != kWhite && canvas.at(x, y) != kBlack;
  EXPECT_GT(grey, 10);
}

TEST(Canvas, MixesByOpacity) {
  Canvas canvas(1, 1);
  canvas.fill({0, 0}, {0, 0}, {.colour = {0, 100, 255}, .opacity = 0.5});
  EXPECT_EQ(canvas.at(0, 0), (Colour{128, 178, 255}));
}

TEST(Canvas, CutsOffWhatLiesOutside) {
  Canvas canvas(4, 4);
  canvas.line({-1e9, 2}, {1e9, 2}, {.colour = kBlack});
  canvas.fill({-5, -5}, {0, 0}, {.colour = kBlack});
  canvas.text(3, 3, "mmm", {.colour = kBlack}, 3);
  canvas.dot({100, 100}, {.colour = kBlack, .width = 9});
  EXPECT_EQ(canvas.at(0, 2), kBlack);
  EXPECT_EQ(canvas.at(3, 2), kBlack);
  EXPECT_EQ(canvas.at(0, 0), kBlack);
  EXPECT_EQ(canvas.at(1, 0), kWhite);
}

TEST(Canvas, DrawsNothingAtPlacesThatAreNotFinite) {
  Canvas canvas(4, 4);
  canvas.line({std::nan(""), 2}, {3, 2}, {.colour = kBlack});
  canvas.dot({1, std::numeric_limits<double>::infinity()}, {.colour = kBlack, .width = 3});
  EXPECT_EQ(dark_pixels(canvas), 0);
}

TEST(Canvas, WritesCharactersInSquaresOfTheScale) {
  Canvas small(12, 10), large(24, 20);
  small.text(0, 0, "1", {.colour = kBlack});
  large.text(0, 0, "1", {.colour = kBlack}, 2);
  EXPECT_EQ(dark_pixels(small), 10);
  EXPECT_EQ(dark_pixels(large), 40);
  EXPECT_EQ(small.at(2, 0), kBlack);
  EXPECT_EQ(small.at(0, 0), kWhite);
  EXPECT_EQ(text_width("12", 2), 24);
}

TEST(Canvas, WritesABoxForWhatTheFontLacks) {
  Canvas unknown(6, 9), capital(6, 9), letter(6, 9);
  unknown.text(0, 0, "\x7F", {.colour = kBlack});
  EXPECT_EQ(dark_pixels(unknown), 20);
  capital.text(0, 0, "L", {.colour = kBlack});
  letter.text(0, 0, "l", {.colour = kBlack});
  EXPECT_EQ(capital.rgb(), letter.rgb());
}

}  // namespace
}  // namespace apus::train
