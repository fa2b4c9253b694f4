#include "data/jinja_wrap.h"

#include <algorithm>
#include <cstdio>

#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_letter_at(std::string_view text, size_t pos) {
  if (pos >= text.size()) return false;
  const uint32_t cp = next_code_point(text, pos);
  return is_alpha(cp);
}

// A word may break behind a hyphen between letters, two of them before it at least.
bool breaks_behind(std::string_view word, size_t hyphen) {
  if (word[hyphen] != '-' || hyphen < 2 || !is_letter_at(word, hyphen + 1)) return false;
  size_t letters = 0;
  for (size_t pos = 0; pos < hyphen;) letters = is_alpha(next_code_point(word, pos)) ? letters + 1 : 0;
  return letters >= 2;
}

void add_word(std::vector<std::string_view>& chunks, std::string_view word, bool on_hyphens) {
  size_t begin = 0;
  for (size_t i = 0; on_hyphens && i + 1 < word.size(); ++i) {
    if (!breaks_behind(word.substr(begin), i - begin)) continue;
    chunks.push_back(word.substr(begin, i + 1 - begin));
    begin = i + 1;
  }
  chunks.push_back(word.substr(begin));
}

// Words and the white space between them.
std::vector<std::string_view> chunks_of(std::string_view text, bool on_hyphens) {
  std::vector<std::string_view> chunks;
  for (size_t pos = 0; pos < text.size();) {
    const bool space = is_ascii_space(text[pos]);
    size_t end = pos;
    while (end < text.size() && is_ascii_space(text[end]) == space) ++end;
    const std::string_view chunk = text.substr(pos, end - pos);
    if (space) {
      chunks.push_back(chunk);
    } else {
      add_word(chunks, chunk, on_hyphens);
    }
    pos = end;
  }
  return chunks;
}

bool is_blank(std::string_view text) {
  return strip(text, Side::kBoth).empty();
}

int64_t width_of(std::string_view text) {
  return static_cast<int64_t>(count_code_points(text));
}

/// Fills lines with chunks, from the first to the last.
class Wrapper {
 public:
  Wrapper(std::vector<std::string_view> chunks, const WrapStyle& style)
      : chunks_(std::move(chunks)), style_(style) {}

  std::vector<std::string> run() {
    while (next_ < chunks_.size()) {
      if (!lines_.empty() && is_blank(chunks_[next_])) {
        ++next_;  // a line does not start with white space
        continue;
      }
      fill_line();
    }
    return std::move(lines_);
  }

 private:
  std::vector<std::string_view> chunks_;
  const WrapStyle& style_;
  size_t next_ = 0;
  std::vector<std::string> lines_;

  void fill_line() {
    std::vector<std::string_view> line;
    int64_t width = 0;
    while (next_ < chunks_.size() && width + width_of(chunks_[next_]) <= style_.width) {
      width += width_of(chunks_[next_]);
      line.push_back(chunks_[next_++]);
    }
    if (next_ < chunks_.size() && width_of(chunks_[next_]) > style_.width) take_long(line, width);
    if (!line.empty() && is_blank(line.back())) line.pop_back();
    std::string text;
    for (const std::string_view part : line) text += part;
    if (!line.empty()) lines_.push_back(std::move(text));
  }

  // A chunk that fits no line: cut, or a line of its own.
  void take_long(std::vector<std::string_view>& line, int64_t width) {
    std::string_view& chunk = chunks_[next_];
    if (style_.break_long_words) {
      int64_t room = std::max<int64_t>(style_.width - width, style_.width < 1 ? 1 : 0);
      size_t end = byte_offset(chunk, static_cast<size_t>(room));
      if (style_.break_on_hyphens && width_of(chunk) > room) {
        const size_t hyphen = chunk.substr(0, end).rfind('-');
        const bool useful = hyphen != std::string_view::npos && hyphen > 0 &&
                            chunk.substr(0, hyphen).find_first_not_of('-') != std::string_view::npos;
        if (useful) end = hyphen + 1;
      }
      line.push_back(chunk.substr(0, end));
      chunk.remove_prefix(end);
      if (chunk.empty()) ++next_;
    } else if (line.empty()) {
      line.push_back(chunks_[next_++]);
    }
  }
};

// Removes what lies between two marks, as often as both are found.
void remove_between(std::string& text, std::string_view open, std::string_view close) {
  std::string out;
  size_t pos = 0;
  while (true) {
    const size_t begin = text.find(open, pos);
    const size_t end = begin == std::string::npos ? begin : text.find(close, begin);
    if (end == std::string::npos) break;
    out.append(text, pos, begin - pos);
    pos = end + close.size();
  }
  out.append(text, pos);
  text = std::move(out);
}

void unescape_entity(std::string& text, std::string_view entity, std::string_view with) {
  std::string out;
  size_t pos = 0;
  for (size_t at = text.find(entity); at != std::string::npos; at = text.find(entity, pos)) {
    out.append(text, pos, at - pos).append(with);
    pos = at + entity.size();
  }
  out.append(text, pos);
  text = std::move(out);
}

}  // namespace

std::vector<std::string> wrap_line(std::string_view text, const WrapStyle& style) {
  return Wrapper(chunks_of(text, style.break_on_hyphens), style).run();
}

std::string strip_tags(std::string_view text) {
  std::string out(text);
  remove_between(out, "<!--", "-->");
  remove_between(out, "<", ">");
  std::string words;
  bool space = false;
  for (size_t pos = 0; pos < out.size();) {
    const size_t begin = pos;
    const bool is_gap = is_space(next_code_point(out, pos));
    if (!is_gap) {
      if (space && !words.empty()) words += ' ';
      words.append(out, begin, pos - begin);
    }
    space = is_gap;
  }
  unescape_entity(words, "&lt;", "<");
  unescape_entity(words, "&gt;", ">");
  unescape_entity(words, "&#34;", "\"");
  unescape_entity(words, "&quot;", "\"");
  unescape_entity(words, "&#39;", "'");
  unescape_entity(words, "&amp;", "&");
  return words;
}

std::string percent_encode(std::string_view text, std::string_view safe, char plus) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       safe.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else if (plus != '\0' && c == plus) {
      out += '+';
    } else {
      char code[4];
      std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code;
    }
  }
  return out;
}

}  // namespace apus::data::jinja
