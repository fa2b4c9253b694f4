#include "apus/base/parse_value.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <system_error>

#include "apus/base/error.h"

namespace apus {
namespace {

// from_chars takes no '+', people write it.
template <typename T>
std::errc parse_whole(std::string_view text, T& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc() && end != text.data() + text.size()) return std::errc::invalid_argument;
  return code;
}

}  // namespace

bool parse_bool(std::string_view key, std::string_view text) {
  std::string word(text);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  throw ConfigError(detail::concat(key, ": expected true or false, got '", text, "'"));
}

int64_t parse_int(std::string_view key, std::string_view text) {
  int64_t value = 0;
  const std::errc code = parse_whole(text, value);
  APUS_CHECK(code != std::errc::result_out_of_range, ConfigError, key, ": '", text, "' does not fit 64 bits");
  APUS_CHECK(code == std::errc(), ConfigError, key, ": expected an integer, got '", text, "'");
  return value;
}

double parse_double(std::string_view key, std::string_view text) {
  double value = 0;
  const std::errc code = parse_whole(text, value);
  APUS_CHECK(code != std::errc::result_out_of_range, ConfigError, key, ": '", text,
             "' does not fit a double");
  APUS_CHECK(code == std::errc() && std::isfinite(value), ConfigError, key, ": expected a number, got '",
             text, "'");
  return value;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  constexpr std::string_view kSeparators = ", \t\r\n";
  for (std::size_t begin = text.find_first_not_of(kSeparators); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kSeparators, end);
  }
  return parts;
}

}  // namespace apus
