#include "data/jinja_split.h"

#include <algorithm>

#include "data/jinja_runtime.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

// The end of the word that `text` starts with.
size_t word_end(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    size_t next = pos;
    if (is_space(next_code_point(text, next))) break;
    pos = next;
  }
  return pos;
}

// All words with their places: splitting from the right cuts what is left of the last ones.
std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> all;
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    const size_t end = word_end(text);
    all.push_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
  }
  return all;
}

}  // namespace

std::vector<std::string_view> split_spaces(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    const size_t end = word_end(text);
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<std::string_view> split_spaces_right(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts = words(text);
  if (limit < 0 || static_cast<int64_t>(parts.size()) <= limit) return parts;
  const size_t joined = parts.size() - static_cast<size_t>(limit);
  const char* begin = text.data();
  const std::string_view last = parts[joined - 1];
  const char* end = last.data() + last.size();
  parts.erase(parts.begin() + 1, parts.begin() + static_cast<ptrdiff_t>(joined));
  // What stays together begins where the text does, white space included.
  parts.front() = std::string_view(begin, static_cast<size_t>(end - begin));
  return parts;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::string replace(Runtime& runtime, std::string_view text, std::string_view old, std::string_view with,
                    int64_t limit) {
  std::string out;
  size_t pos = 0;
  const auto more = [&] { return limit < 0 || limit-- > 0; };
  while (true) {
    const size_t at = old.empty() ? pos : text.find(old, pos);
    if (at == std::string_view::npos || !more()) break;
    runtime.require_size(out.size() + (at - pos) + with.size());
    out.append(text.substr(pos, at - pos)).append(with);
    pos = at + old.size();
    if (!old.empty()) continue;
    if (pos == text.size()) return out;
    const size_t begin = pos;
    next_code_point(text, pos);
    out.append(text.substr(begin, pos - begin));
  }
  out.append(text.substr(pos));
  runtime.grow(out.size());
  return out;
}

bool is_lower_case(std::string_view text) {
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t cp = next_code_point(text, pos);
    if (is_upper(cp) || is_title(cp)) return false;
    any = any || is_lower(cp);
  }
  return any;
}

bool is_upper_case(std::string_view text) {
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t cp = next_code_point(text, pos);
    if (is_lower(cp) || is_title(cp)) return false;
    any = any || is_upper(cp);
  }
  return any;
}

}  // namespace apus::data::jinja
