#pragma once

#include <cstdint>

namespace apus::data::jinja {

/// A code point whose upper or title case is more than one code point, as UTF-8.
struct SpecialCase {
  uint32_t code_point;
  const char* upper;
  const char* title;
};

/// The entry of a code point; nullptr where the simple mapping is right.
const SpecialCase* find_special_case(uint32_t code_point);

}  // namespace apus::data::jinja
