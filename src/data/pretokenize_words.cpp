// Hand-written splitters for the patterns that most byte-level models share. Each alternative of the pattern
// is one function here, tried in the pattern's order; classes come from the generated table.
#include <array>
#include <bit>
#include <cstring>

#include "data/pretokenize.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";

enum class Kind : uint8_t { kLetter, kNumber, kSpace, kNewline, kOther };

// By a code point's class bits; those of normalisation play no part.
constexpr uint8_t kClassBits = 63;
constexpr std::array<Kind, kClassBits + 1> kKinds = [] {
  std::array<Kind, kClassBits + 1> kinds{};
  for (uint8_t bits = 0; bits <= kClassBits; ++bits) {
    const UnicodeClass traits(bits);
    kinds[bits] = traits.is_space() ? Kind::kSpace : Kind::kOther;
    if (traits.is_number()) kinds[bits] = Kind::kNumber;
    if (traits.is_letter()) kinds[bits] = Kind::kLetter;
  }
  return kinds;
}();

constexpr std::array<Kind, 128> kAscii = [] {
  std::array<Kind, 128> kinds{};
  for (int c = 0; c < 128; ++c) {
    Kind kind = Kind::kOther;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) kind = Kind::kLetter;
    if (c >= '0' && c <= '9') kind = Kind::kNumber;
    if (c == ' ' || (c >= '\t' && c <= '\r')) kind = Kind::kSpace;
    if (c == '\n' || c == '\r') kind = Kind::kNewline;
    kinds[static_cast<size_t>(c)] = kind;
  }
  return kinds;
}();

constexpr uint64_t in_each_byte(unsigned char value) {
  return value * 0x0101010101010101ULL;
}

// The upper bit of each byte that is no ASCII letter.
uint64_t other_than_letters(uint64_t bytes) {
  constexpr uint64_t kUpper = in_each_byte(0x80);
  const uint64_t folded = (bytes | in_each_byte(0x20)) & ~kUpper;
  const uint64_t from_a = folded + in_each_byte(0x80 - 'a');
  const uint64_t beyond_z = folded + in_each_byte(0x7F - 'z');
  return (~(from_a & ~beyond_z) | bytes) & kUpper;
}

struct Step {
  Kind kind;
  uint32_t length;
};

// Reads a text, valid UTF-8, from left to right.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : begin_(text.data()), end_(text.data() + text.size()) {}

  bool at_end(const char* at) const { return at >= end_; }

  Step step(const char* at) const {
    const auto first = static_cast<unsigned char>(*at);
    if (first < 0x80) return {kAscii[first], 1};
    const CodePoint point = code_point_at(at);
    return {kKinds[unicode_class(point.value).bits() & kClassBits], point.length};
  }

  const char* skip(const char* at, Kind kind) const {
    while (at < end_) {
      const Step next = step(at);
      if (next.kind != kind) break;
      at += next.length;
    }
    return at;
  }

  // The same for letters; eight bytes at a time as long as they are ASCII.
  const char* skip_letters(const char* at) const {
    for (;;) {
      if constexpr (std::endian::native == std::endian::little) {
        uint64_t bytes = 0;
        while (end_ - at >= static_cast<ptrdiff_t>(sizeof(bytes))) {
          std::memcpy(&bytes, at, sizeof(bytes));
          const uint64_t others = other_than_letters(bytes);
          at += others == 0 ? 8 : std::countr_zero(others) / 8;
          if (others != 0) break;
        }
      }
      if (!is(at, Kind::kLetter)) return at;
      at += step(at).length;
    }
  }

  bool is(const char* at, Kind kind) const { return at < end_ && step(at).kind == kind; }

  // \s+(?!\S)|\s+ from a white space character on; newlines count as white space here.
  const char* space_run(const char* at) const {
    const char* last = at;
    const char* stop = at;
    while (stop < end_) {
      const Step next = step(stop);
      if (next.kind != Kind::kSpace && next.kind != Kind::kNewline) break;
      last = stop;
      stop += next.length;
    }
    return stop == end_ || last == at ? stop : last;
  }

  // The end of \s*[\r\n]+ from `at` on, or null: just behind the last newline of the white space.
  const char* newline_run(const char* at) const {
    const char* found = nullptr;
    while (at < end_) {
      const Step next = step(at);
      if (next.kind == Kind::kNewline) found = at + 1;
      if (next.kind != Kind::kSpace && next.kind != Kind::kNewline) break;
      at += next.length;
    }
    return found;
  }

  // The byte `offset` behind `at`, or 0.
  char peek(const char* at, int offset) const { return end_ - at > offset ? at[offset] : '\0'; }

  const char* begin() const { return begin_; }

 private:
  const char* begin_;
  const char* end_;
};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

// Length of 's 't 're 've 'm 'll 'd after an apostrophe at `at`, apostrophe included, or 0.
uint32_t contraction(char first, char second) {
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (first == 'l' && second == 'l') return 3;
  return (first == 'r' || first == 'v') && second == 'e' ? 3 : 0;
}

// The same without regard to case; U+017F folds to s.
uint32_t contraction_any_case(const Scanner& text, const char* at) {
  const char first = text.peek(at, 1);
  if (first == '\xC5' && text.peek(at, 2) == '\xBF') return 3;
  return contraction(lower(first), lower(text.peek(at, 2)));
}

class RangeWriter {
 public:
  RangeWriter(const Scanner& text, uint32_t base, std::vector<ByteRange>& out)
      : begin_(text.begin()), base_(base), out_(out) {}
  void add(const char* from, const char* to) {
    out_.push_back(
        {base_ + static_cast<uint32_t>(from - begin_), base_ + static_cast<uint32_t>(to - begin_)});
  }

 private:
  const char* begin_;
  uint32_t base_;
  std::vector<ByteRange>& out_;
};

// The end of GPT-2's match at `at`.
const char* gpt2_match(const Scanner& text, const char* at) {
  if (*at == '\'') {
    if (const uint32_t length = contraction(text.peek(at, 1), text.peek(at, 2))) return at + length;
  }
  const char* body = *at == ' ' && !text.at_end(at + 1) ? at + 1 : at;
  Kind kind = text.step(body).kind;
  if (kind == Kind::kSpace || kind == Kind::kNewline) return text.space_run(at);
  return kind == Kind::kLetter ? text.skip_letters(body) : text.skip(body, kind);
}

template <int kMostNumbers>
const char* number_match(const Scanner& text, const char* at, uint32_t first_length) {
  at += first_length;
  for (int taken = 1; taken < kMostNumbers && text.is(at, Kind::kNumber); ++taken) at += text.step(at).length;
  return at;
}

// The end of cl100k's match at `at`, with numbers in groups of at most kMostNumbers.
template <int kMostNumbers>
const char* cl100k_match(const Scanner& text, const char* at) {
  if (*at == '\'') {
    if (const uint32_t length = contraction_any_case(text, at)) return at + length;
  }
  const Step first = text.step(at);
  const char* next = at + first.length;
  if (first.kind == Kind::kLetter) return text.skip_letters(next);
  if (first.kind == Kind::kNumber) return number_match<kMostNumbers>(text, at, first.length);
  if (first.kind != Kind::kNewline && text.is(next, Kind::kLetter)) return text.skip_letters(next);
  const char* body = *at == ' ' ? next : at;
  if (text.is(body, Kind::kOther)) return text.skip(text.skip(body, Kind::kOther), Kind::kNewline);
  if (const char* newline = text.newline_run(at)) return newline;
  return text.space_run(at);
}

template <typename Match>
void split_all(std::string_view whole, uint32_t base, std::vector<ByteRange>& out, Match match) {
  const Scanner text(whole);
  RangeWriter writer(text, base, out);
  for (const char* at = text.begin(); !text.at_end(at);) {
    const char* end = match(text, at);
    writer.add(at, end);
    at = end;
  }
}

}  // namespace

std::string_view gpt2_pattern() {
  return kGpt2;
}

void split_gpt2(std::string_view text, uint32_t base, std::vector<ByteRange>& out) {
  split_all(text, base, out, gpt2_match);
}

void split_qwen2(std::string_view text, uint32_t base, std::vector<ByteRange>& out) {
  split_all(text, base, out, cl100k_match<1>);
}

void split_llama3(std::string_view text, uint32_t base, std::vector<ByteRange>& out) {
  split_all(text, base, out, cl100k_match<3>);
}

WordSplitter known_splitter(std::string_view regex) {
  if (regex == kGpt2) return split_gpt2;
  if (regex == kQwen2) return split_qwen2;
  return regex == kLlama3 ? split_llama3 : nullptr;
}

}  // namespace apus::data
