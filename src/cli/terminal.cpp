#include "cli/terminal.h"

#include <unistd.h>

#include "apus/base/unicode.h"

namespace apus::cli {
namespace {

bool is_control(unsigned char first, unsigned char second) {
  if (first == 0xC2) return second >= 0x80 && second < 0xA0;
  return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
}

std::string escaped(unsigned code) {
  constexpr char kDigits[] = "0123456789abcdef";
  return {'\\', 'x', kDigits[code >> 4 & 15], kDigits[code & 15]};
}

}  // namespace

bool colours_wanted(const Environment& environment) {
  if (!environment.get_or("NO_COLOR", "").empty() || environment.get_or("TERM", "") == "dumb") return false;
  return ::isatty(STDOUT_FILENO) == 1;
}

std::string harmless(std::string_view text) {
  const std::string valid = replace_invalid_utf8(text);
  std::string shown;
  for (size_t i = 0; i < valid.size(); ++i) {
    const auto first = static_cast<unsigned char>(valid[i]);
    const auto second = i + 1 < valid.size() ? static_cast<unsigned char>(valid[i + 1]) : '\0';
    if (!is_control(first, second)) {
      shown += valid[i];
    } else {
      shown += escaped(first == 0xC2 ? second : first);
      i += first == 0xC2 ? 1 : 0;
    }
  }
  return shown;
}

}  // namespace apus::cli
