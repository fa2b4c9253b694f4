// Cuts a JSON array into its elements without parsing them: only strings, brackets and what stands between
// elements are looked at.
#include <string>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "data/row_scanner.h"

namespace apus::data {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

class ArrayScanner final : public RowScanner {
 public:
  explicit ArrayScanner(const RowScannerOptions& options)
      : options_(options), line_(options.first_line), partial_(options.max_row_bytes) {}

  size_t feed(std::string_view text, int64_t most_rows, RowBlock& block) override {
    size_t at = 0;
    while (at < text.size() && block.size() < most_rows && block.bytes() < options_.block_bytes) {
      if (place_ == Place::kInside) {
        const size_t end = scan_element(text, at);
        partial_.append(text.substr(at, end - at));
        at = end;
        if (ended_) end_element(block);
      } else if (between_elements(text[at])) {
        ++at;
      }
    }
    return at;
  }

  void finish(RowBlock& block) override {
    if (place_ == Place::kInside)
      fail(element_line_, "the element that begins here has no end; was the file cut short?");
    if (place_ != Place::kBehind) fail(line_, "the array has no closing ']'; was the file cut short?");
  }

 private:
  enum class Place { kBefore, kFirst, kNext, kInside, kAfter, kBehind };

  [[noreturn]] void fail(int64_t line, const std::string& what) const {
    throw DataError(options_.name, line, "broken JSON array" + element_text() + ": " + what);
  }

  /// Which element an error is in, or behind; lines do not tell where all stand in one.
  std::string element_text() const {
    if (place_ == Place::kBefore || place_ == Place::kBehind) return "";
    return " (element " + std::to_string(elements_ + (place_ == Place::kAfter ? 0 : 1)) + ")";
  }

  [[noreturn]] void unexpected(const char* wanted, char got) const {
    fail(line_, std::string("expected ") + wanted + ", got '" + got + "'");
  }

  /// Handles a byte that is in no element; false if an element begins with it.
  bool between_elements(char c) {
    if (c == '\n') ++line_;
    if (is_space(c)) return true;
    switch (place_) {
      case Place::kBefore:
        if (c != '[') unexpected("'['", c);
        place_ = Place::kFirst;
        return true;
      case Place::kAfter:
        if (c != ',' && c != ']') unexpected("',' or ']' behind an element", c);
        place_ = c == ',' ? Place::kNext : Place::kBehind;
        return true;
      case Place::kBehind:
        unexpected("nothing behind the array", c);
      default:
        break;
    }
    if (c == ']' && place_ == Place::kFirst) {
      place_ = Place::kBehind;
      return true;
    }
    if (c == ',' || c == ']' || c == '}') unexpected("an element", c);
    place_ = Place::kInside;
    element_line_ = line_;
    return false;
  }

  /// Goes on through an element; returns where it, or the text, ends, and sets `ended_`.
  size_t scan_element(std::string_view text, size_t at) {
    for (ended_ = false; at < text.size() && !ended_; ++at) {
      const char c = text[at];
      if (in_string_) {
        scan_string(c);
      } else if (closers_.empty() && (c == ',' || c == ']' || c == '}' || is_space(c))) {
        ended_ = true;
        return at;  // the byte behind a number or a word
      } else {
        scan_structure(c);
      }
      if (c == '\n') ++line_;
    }
    return at;
  }

  void scan_string(char c) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      ended_ = closers_.empty();
    }
  }

  void scan_structure(char c) {
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') {
      closers_.push_back(c == '{' ? '}' : ']');
      if (static_cast<int64_t>(closers_.size()) > kMaxJsonDepth)
        fail(line_, "an element is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    if (c != '}' && c != ']') return;
    if (c != closers_.back()) unexpected(closers_.back() == '}' ? "'}'" : "']'", c);
    closers_.pop_back();
    ended_ = closers_.empty();
  }

  void end_element(RowBlock& block) {
    partial_.move_to(block, element_line_);
    place_ = Place::kAfter;
    ++elements_;
  }

  RowScannerOptions options_;
  int64_t line_;
  PartialRow partial_;
  Place place_ = Place::kBefore;
  int64_t element_line_ = 0;
  int64_t elements_ = 0;  // that have ended
  std::string closers_;
  bool in_string_ = false;
  bool escaped_ = false;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<RowScanner> make_array_scanner(const RowScannerOptions& options) {
  return std::make_unique<ArrayScanner>(options);
}

}  // namespace apus::data
