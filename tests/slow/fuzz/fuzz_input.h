#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "apus/base/error.h"

/// What the fuzz targets share. A target must take any bytes: it may refuse them by one of the library's own
/// exceptions, and by nothing else.
namespace apus::fuzz {

/// The bytes of an input as text.
inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// An input of two parts, cut at its first zero byte; the second part is empty if there is none.
inline std::pair<std::string_view, std::string_view> two_parts(std::string_view text) {
  const size_t zero = text.find('\0');
  if (zero == text.npos) return {text, {}};
  return {text.substr(0, zero), text.substr(zero + 1)};
}

/// Runs `work`; says whether it came to its end and did not refuse the input.
template <typename Work>
bool taken(const Work& work) {
  try {
    work();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// What must hold for every input; a failure is found like a crash.
inline void require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace apus::fuzz
