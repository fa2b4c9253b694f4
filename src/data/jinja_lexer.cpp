#include "data/jinja_lexer.h"

#include <algorithm>
#include <cstdlib>

#include "data/jinja_bigint.h"
#include "data/jinja_unescape.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

// \r\n and \r become \n; one newline at the end goes unless it is kept.
std::string normalized(std::string_view source, bool keep_trailing_newline) {
  std::string text = normalize_newlines(source);
  if (!keep_trailing_newline && text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

class Lexer {
 public:
  Lexer(std::string text, const JinjaOptions& options) : text_(std::move(text)), options_(options) {}

  std::vector<Token> run() {
    while (pos_ < text_.size()) lex_root();
    emit(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  std::string text_;
  const JinjaOptions& options_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text consumed so far ends in a newline
  std::vector<char> brackets_;
  std::vector<Token> tokens_;

  [[noreturn]] void fail_syntax(const std::string& reason) const {
    throw SyntaxFailure(JinjaErrorKind::kSyntax, line_, reason);
  }

  void emit(TokenKind kind, std::string text = {}, Value number = {}) {
    tokens_.push_back({kind, line_, std::move(text), std::move(number)});
  }

  bool at(std::string_view what) const { return at(pos_, what); }
  bool at(size_t pos, std::string_view what) const { return text_.compare(pos, what.size(), what) == 0; }

  void advance_to(size_t pos) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(pos_),
                                         text_.begin() + static_cast<ptrdiff_t>(pos), '\n'));
    line_starting_ = pos > 0 && text_[pos - 1] == '\n';
    pos_ = pos;
  }

  size_t after_spaces(size_t pos) const {
    while (pos < text_.size()) {
      size_t next = pos;
      if (!is_space(next_code_point(text_, next))) break;
      pos = next;
    }
    return pos;
  }

  // The next {{, {% or {# from `from`; the end of the text if there is none.
  size_t find_tag(size_t from) const {
    for (size_t at = text_.find('{', from); at != std::string::npos; at = text_.find('{', at + 1)) {
      const char next = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return text_.size();
  }

  char sign_at(size_t pos) const {
    const char c = pos < text_.size() ? text_[pos] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  // The data before a tag, stripped as the tag's sign and lstrip_blocks say.
  std::string_view stripped(size_t begin, size_t end, char sign, bool is_print) const {
    const std::string_view data = std::string_view(text_).substr(begin, end - begin);
    if (sign == '-') return strip(data, Side::kRight);
    if (sign == '+' || is_print || !options_.lstrip_blocks) return data;
    const size_t newline = data.rfind('\n');
    const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_start == 0 && !line_starting_) return data;
    const bool blank = strip(data.substr(line_start), Side::kBoth).empty();
    return blank ? data.substr(0, line_start) : data;
  }

  void emit_data(std::string_view data) {
    if (!data.empty()) emit(TokenKind::kData, std::string(data));
  }

  void lex_root() {
    const size_t tag = find_tag(pos_);
    if (tag == text_.size()) {
      emit_data(std::string_view(text_).substr(pos_));
      pos_ = tag;
      return;
    }
    const char kind = text_[tag + 1];
    const char sign = sign_at(tag + 2);
    emit_data(stripped(pos_, tag, sign, kind == '{'));
    const size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    advance_to(inside);
    line_starting_ = false;
    if (kind == '#') {
      lex_comment();
    } else if (kind == '{') {
      emit(TokenKind::kPrintBegin);
      lex_tag("}}", TokenKind::kPrintEnd);
    } else if (const size_t raw = raw_begin(inside); raw != 0) {
      advance_to(raw);
      lex_raw();
    } else {
      emit(TokenKind::kBlockBegin);
      lex_tag("%}", TokenKind::kBlockEnd);
    }
  }

  // Where the end mark of a tag at `pos` ends, its sign and what it strips included; 0 if there is none.
  size_t end_mark(size_t pos, std::string_view mark, bool is_print) const {
    if (at(pos, mark)) {
      pos += mark.size();
      const bool trims = !is_print && options_.trim_blocks && pos < text_.size() && text_[pos] == '\n';
      return trims ? pos + 1 : pos;
    }
    const char sign = sign_at(pos);
    if (sign == '\0' || !at(pos + 1, mark) || (sign == '+' && is_print)) return 0;
    return sign == '-' ? after_spaces(pos + 1 + mark.size()) : pos + 1 + mark.size();
  }

  void lex_comment() {
    for (size_t end = text_.find('#', pos_); end != std::string::npos; end = text_.find('#', end + 1)) {
      if (!at(end, "#}")) continue;
      const bool has_sign = end > pos_ && sign_at(end - 1) != '\0';
      advance_to(end_mark(has_sign ? end - 1 : end, "#}", false));
      return;
    }
    fail_syntax("Missing end of comment tag");
  }

  // Where the opening tag of a raw block ends if `pos` is inside one, else 0.
  size_t raw_begin(size_t pos) const {
    pos = after_spaces(pos);
    if (!at(pos, "raw")) return 0;
    pos = after_spaces(pos + 3);
    if (at(pos, "%}")) return pos + 2;
    return at(pos, "-%}") ? after_spaces(pos + 3) : 0;
  }

  void lex_raw() {
    for (size_t tag = text_.find("{%", pos_); tag != std::string::npos; tag = text_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      size_t pos = after_spaces(tag + 2 + (sign != '\0' ? 1 : 0));
      if (!at(pos, "endraw")) continue;
      const size_t end = end_mark(after_spaces(pos + 6), "%}", false);
      if (end == 0) continue;
      emit_data(stripped(pos_, tag, sign, false));
      advance_to(end);
      return;
    }
    fail_syntax("Missing end of raw directive");
  }

  void lex_tag(std::string_view mark, TokenKind end_kind) {
    while (true) {
      advance_to(after_spaces(pos_));
      if (pos_ == text_.size()) return;  // the parser says what is missing
      const size_t end = brackets_.empty() ? end_mark(pos_, mark, end_kind == TokenKind::kPrintEnd) : 0;
      if (end != 0) {
        emit(end_kind);
        advance_to(end);
        return;
      }
      lex_token();
    }
  }

  void lex_token() {
    const char c = text_[pos_];
    if (is_ascii_digit(c)) {
      lex_number();
    } else if (c == '"' || c == '\'') {
      lex_string(c);
    } else if (!lex_name()) {
      lex_operator();
    }
  }

  bool lex_name() {
    size_t end = pos_;
    while (end < text_.size()) {
      size_t next = end;
      if (!is_identifier(next_code_point(text_, next), false)) break;
      end = next;
    }
    if (end == pos_) return false;
    emit(TokenKind::kName, text_.substr(pos_, end - pos_));
    pos_ = end;
    return true;
  }

  void lex_string(char quote) {
    size_t end = pos_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size())
      fail_syntax("unexpected char " + std::string(1, quote) + ": the string has no end");
    const std::string_view body = std::string_view(text_).substr(pos_ + 1, end - pos_ - 1);
    std::string reason;
    std::optional<std::string> text = unescape(body, reason);
    if (!text) fail_syntax(reason);
    emit(TokenKind::kString, std::move(*text));
    advance_to(end + 1);
  }

  // The end of digits that may have single underscores between them.
  template <typename IsDigit>
  size_t after_digits(size_t pos, IsDigit is_digit) const {
    while (pos < text_.size()) {
      const size_t digit = text_[pos] == '_' ? pos + 1 : pos;
      if (digit >= text_.size() || !is_digit(text_[digit])) break;
      pos = digit + 1;
    }
    return pos;
  }

  // The end of a float at the position, or 0 if the number there is an integer.
  size_t float_end(size_t whole_end) const {
    if (pos_ > 0 && text_[pos_ - 1] == '.') return 0;
    size_t end = whole_end;
    bool is_float = false;
    if (at(end, ".") && end + 1 < text_.size() && is_ascii_digit(text_[end + 1])) {
      end = after_digits(end + 1, is_ascii_digit);
      is_float = true;
    }
    if (at(end, "e") || at(end, "E")) {
      const size_t digits = end + 1 + (sign_at(end + 1) != '\0' ? 1 : 0);
      if (digits < text_.size() && is_ascii_digit(text_[digits])) return after_digits(digits, is_ascii_digit);
    }
    return is_float ? end : 0;
  }

  std::string digits_between(size_t begin, size_t end) const {
    std::string digits = text_.substr(begin, end - begin);
    std::erase(digits, '_');
    return digits;
  }

  void emit_integer(size_t begin, size_t end, uint32_t base) {
    if (end - begin > 5000) fail_syntax("an integer has more than 5000 digits");
    emit(TokenKind::kNumber, {}, Value::big(*BigInt::parse(digits_between(begin, end), base)));
    pos_ = end;
  }

  bool lex_based_integer(char letter, uint32_t base) {
    if (text_[pos_] != '0' || pos_ + 1 >= text_.size() || (text_[pos_ + 1] | 0x20) != letter) return false;
    const size_t begin = pos_ + 2;
    const size_t end = after_digits(begin, [base](char c) {
      return BigInt::parse({&c, 1}, base).has_value();
    });
    if (end == begin) return false;
    emit_integer(begin, end, base);
    return true;
  }

  void lex_number() {
    size_t end = after_digits(pos_, is_ascii_digit);
    if (const size_t real_end = float_end(end); real_end != 0) {
      emit(TokenKind::kNumber, {}, Value::real(std::strtod(digits_between(pos_, real_end).c_str(), nullptr)));
      pos_ = real_end;
      return;
    }
    if (lex_based_integer('b', 2) || lex_based_integer('o', 8) || lex_based_integer('x', 16)) return;
    if (text_[pos_] == '0') end = after_digits(pos_, [](char c) { return c == '0'; });
    emit_integer(pos_, end, 10);
  }

  void balance(char bracket) {
    if (bracket == '(' || bracket == '[' || bracket == '{') {
      brackets_.push_back(bracket == '(' ? ')' : bracket == '[' ? ']' : '}');
      return;
    }
    if (bracket != ')' && bracket != ']' && bracket != '}') return;
    if (brackets_.empty()) fail_syntax(std::string("unexpected '") + bracket + "'");
    if (brackets_.back() != bracket) {
      fail_syntax(std::string("unexpected '") + bracket + "', expected '" + brackets_.back() + "'");
    }
    brackets_.pop_back();
  }

  void lex_operator() {
    for (const std::string_view op : kOperators) {
      if (!at(op)) continue;
      if (op.size() == 1) balance(op[0]);
      emit(TokenKind::kOperator, std::string(op));
      pos_ += op.size();
      return;
    }
    size_t next = pos_;
    next_code_point(text_, next);
    fail_syntax("unexpected char '" + text_.substr(pos_, next - pos_) + "'");
  }
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const JinjaOptions& options) {
  if (source.size() > options.max_source_bytes) {
    throw SyntaxFailure(JinjaErrorKind::kLimit, 0,
                        "the template has " + std::to_string(source.size()) + " bytes, more than " +
                            std::to_string(options.max_source_bytes) + " (JinjaOptions::max_source_bytes)");
  }
  return Lexer(normalized(source, options.keep_trailing_newline), options).run();
}

}  // namespace apus::data::jinja
