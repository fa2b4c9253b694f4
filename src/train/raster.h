#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace apus::train {

/// A colour of 8 bits a channel.
struct Colour {
  uint8_t red = 0, green = 0, blue = 0;
  friend bool operator==(const Colour&, const Colour&) = default;
};

/// A place in pixels; whole numbers are the middles of pixels.
struct Place {
  double x = 0.0, y = 0.0;
};

/// Colour and strength of what is drawn.
struct Ink {
  Colour colour;
  /// Of lines, in pixels.
  double width = 1.0;
  /// 0: invisible, 1: covers what lies below.
  double opacity = 1.0;
};

/// Height and width of a character at scale 1, its right and lower margin included.
inline constexpr int kGlyphWidth = 6, kGlyphHeight = 9;

/// A white canvas to draw on. What lies outside is cut off; places that are not finite draw nothing.
class Canvas final {
 public:
  Canvas(int width, int height);

  int width() const { return width_; }
  int height() const { return height_; }
  /// Row by row.
  const std::vector<uint8_t>& rgb() const { return rgb_; }
  Colour at(int x, int y) const;

  /// A straight line with smooth edges.
  void line(Place from, Place to, const Ink& ink);
  /// A filled disc of diameter ink.width.
  void dot(Place centre, const Ink& ink);
  /// All pixels of a rectangle, both corners included.
  void fill(Place from, Place to, const Ink& ink);
  /// ASCII in a 5 x 7 font, each of its pixels `scale` pixels wide; (left, top) is the corner of the first
  /// character. Capitals are written small; what the font lacks is a box.
  void text(int left, int top, std::string_view words, const Ink& ink, int scale = 1);

 private:
  void blend(int x, int y, const Ink& ink, double cover);

  int width_;
  int height_;
  std::vector<uint8_t> rgb_;
};

/// Width in pixels that text() takes.
int text_width(std::string_view words, int scale = 1);

}  // namespace apus::train
