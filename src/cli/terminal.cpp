#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

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

bool progress_wanted(const Environment& environment) {
  return environment.get_or("TERM", "") != "dumb" && ::isatty(STDOUT_FILENO) == 1;
}

bool speaks_utf8(const Environment& environment) {
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (locale.empty()) locale = environment.get_or(name, "");
  }
  std::erase(locale, '-');
  std::ranges::transform(locale, locale.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return locale.find("UTF8") != locale.npos;
}

int terminal_columns() {
  constexpr int kUsual = 80;
  struct winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

void write_terminal(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
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
