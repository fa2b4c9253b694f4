#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/pretokenize_regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>
#include <optional>

#include "apus/base/error.h"
#include "data/older_unicode.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kJitStackBytes = 1024 * 1024;

// PCRE2 refuses a range that starts or ends at a surrogate.
std::vector<CodePointRange> complement(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> rest;
  char32_t next = 0;
  for (const auto& [first, last] : ranges) {
    if (first > next) rest.emplace_back(next, first == 0xE000 ? 0xD7FF : first - 1);
    next = last == 0xD7FF ? 0xE000 : last + 1;
  }
  if (next <= 0x10FFFF) rest.emplace_back(next, 0x10FFFF);
  return rest;
}

std::string spell(const std::vector<CodePointRange>& ranges) {
  std::string text;
  std::array<char, 32> buffer{};
  for (const auto& [first, last] : ranges) {
    const char* format = first == last ? "\\x{%X}" : "\\x{%X}-\\x{%X}";
    const int length = std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(first),
                                     static_cast<unsigned>(last));
    text.append(buffer.data(), static_cast<size_t>(length));
  }
  return text;
}

// \w of the library's regular expressions in a class: as of Whitespace's engine, but without the two joiners.
std::vector<CodePointRange> class_word_ranges() {
  std::vector<CodePointRange> all;
  for (const auto& range : regex_word_ranges())
    if (range != CodePointRange{0x200C, 0x200D}) all.push_back(range);
  return all;
}

// By itself, and for \b, it has Latin-1's numbers that are no digits too.
std::vector<CodePointRange> word_ranges() {
  std::vector<CodePointRange> all = class_word_ranges();
  all.insert(all.end(), {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}});
  std::sort(all.begin(), all.end());
  return all;
}

// The script Han of Unicode 16: PCRE2's may be older, and mean its extensions too.
constexpr std::array<CodePointRange, 22> kHan = {
    {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
     {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
     {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
     {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
     {0x30000, 0x3134A}, {0x31350, 0x323AF}}};

// Of a \p{...}, where it is no other script.
std::vector<CodePointRange> named_ranges(std::string_view name) {
  if (name == "Han") return {kHan.begin(), kHan.end()};
  const bool is_escape = name == "s" || name == "d" || name == "w";
  return is_escape ? std::vector<CodePointRange>{} : property_ranges(name);
}

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF,
                                   &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// How PCRE2 is asked for a script itself: newer releases take the bare name for the script's extensions.
std::string script_name(std::string_view name) {
  const std::string exact = "sc:" + std::string(name);
  return compiles("\\p{" + exact + "}") ? exact : std::string(name);
}

// Copies a pattern, replacing what the two dialects or their Unicode versions disagree on.
class Rewriter {
 public:
  Rewriter(std::string_view pattern, const std::string& source) : pattern_(pattern), source_(source) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\')
        escape();
      else if (in_class_)
        class_character(c);
      else
        plain_character(c);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw NotSupported(source_ + ": regular expression with " + what +
                       " is not supported: " + std::string(pattern_));
  }

  char peek(size_t offset) const { return at_ + offset < pattern_.size() ? pattern_[at_ + offset] : '\0'; }

  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }

  void plain_character(char c) {
    copy(1);
    if (c != '[') return;
    in_class_ = true;
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') refuse("a class that starts with ]");
  }

  void class_character(char c) {
    if (c == '[') refuse("a class inside a class");
    if (c == '&' && peek(1) == '&') refuse("an intersection of classes");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void emit(const std::vector<CodePointRange>& ranges, bool negated) {
    if (in_class_)
      out_ += spell(negated ? complement(ranges) : ranges);
    else
      out_ += (negated ? "[^" : "[") + spell(ranges) + "]";
  }

  void escape() {
    switch (peek(1)) {
      case 's':
      case 'd':
      case 'w':
        return shorthand(/*name=*/peek(1), /*negated=*/false);
      case 'S':
      case 'D':
      case 'W':
        return shorthand(static_cast<char>(std::tolower(peek(1))), /*negated=*/true);
      case 'b':
      case 'B':
        return in_class_ ? copy(2) : word_boundary(peek(1) == 'B');
      case 'h':
      case 'H':
        emit({{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, peek(1) == 'H');
        at_ += 2;
        return;
      case 'p':
      case 'P':
        return property();
      case 'u':
        return unicode_escape();
      default:
        return copy(2);
    }
  }

  // Where a word begins or ends; PCRE2's own words are of other characters.
  void word_boundary(bool negated) {
    const std::string word = "[" + spell(word_ranges()) + "]";
    const std::string inside = "(?<=" + word + ")", behind = "(?<!" + word + ")";
    const std::string at_word = "(?=" + word + ")", at_other = "(?!" + word + ")";
    out_ += negated ? "(?:" + inside + at_word + "|" + behind + at_other + ")"
                    : "(?:" + inside + at_other + "|" + behind + at_word + ")";
    at_ += 2;
  }

  void shorthand(char name, bool negated) {
    if (name == 'w')
      emit(in_class_ ? class_word_ranges() : word_ranges(), negated);
    else
      emit(property_ranges(std::string_view(&name, 1)), negated);
    at_ += 2;
  }

  void property() {
    bool negated = peek(1) == 'P';
    size_t begin = at_ + 2;
    size_t end = begin + 1;
    size_t next = end;
    if (peek(2) == '{') {
      end = pattern_.find('}', begin);
      if (end == std::string_view::npos) refuse("an unfinished \\p{");
      next = end + 1;
      ++begin;
      if (begin < end && pattern_[begin] == '^') negated = !negated, ++begin;
    }
    if (begin >= pattern_.size()) refuse("an unfinished \\p");
    const std::string_view name = pattern_.substr(begin, end - begin);
    const auto ranges = named_ranges(name);
    if (ranges.empty())
      out_ += std::string(negated ? "\\P{" : "\\p{") + script_name(name) + "}";
    else
      emit(ranges, negated);
    at_ = next;
  }

  // \uHHHH, which PCRE2 spells \x{HHHH}.
  void unicode_escape() {
    const std::string digits(pattern_.substr(at_ + 2, 4));
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      refuse("a \\u without four hexadecimal digits");
    out_ += "\\x{" + digits + "}";
    at_ += 6;
  }

  std::string_view pattern_;
  const std::string& source_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

class CompiledRegex {
 public:
  CompiledRegex(std::string pattern, std::string source)
      : pattern_(std::move(pattern)), source_(std::move(source)) {
    const std::string rewritten = rewrite_for_pcre2(pattern_, source_);
    const CompileContext context(pcre2_compile_context_create(nullptr));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int error = 0;
    PCRE2_SIZE offset = 0;
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(), options,
                              &error, &offset, context.get()));
    if (!code_) throw NotSupported(source_ + ": PCRE2 does not take " + pattern_ + ": " + error_text(error));
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without JIT the interpreter runs, only slower
  }

  void find_all(std::string_view text, std::vector<PatternPart>& out) const {
    const MatchContext context(pcre2_match_context_create(nullptr));
    const JitStack stack(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr));
    const MatchData data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    size_t done = 0;
    // As the library's engine goes on: one character behind an empty match, up to the text's end itself; an
    // empty match just behind the last one does not count.
    std::optional<size_t> last;
    for (size_t at = 0; at <= text.size() && match(text, at, data.get(), context.get());) {
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
      const size_t begin = bounds[0];
      const size_t end = bounds[1];
      if (begin == end && last == end) {
        at += at < text.size() ? code_point_at(text.data() + at).length : 1;
        continue;
      }
      at = end;
      last = end;
      if (begin > done) out.push_back({range(done, begin), false});
      out.push_back({range(begin, end), true});
      done = end;
    }
    if (done < text.size()) out.push_back({range(done, text.size()), false});
  }

 private:
  static ByteRange range(size_t begin, size_t end) {
    return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  }

  bool match(std::string_view text, size_t at, pcre2_match_data* data, pcre2_match_context* context) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, data, context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                          context);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0)
      throw NotSupported(source_ + ": the regular expression " + pattern_ + " gave up " + std::to_string(at) +
                         " bytes into a text of " + std::to_string(text.size()) + ": " + error_text(found));
    return true;
  }

  std::string pattern_;
  std::string source_;
  Code code_;
};

}  // namespace

std::string rewrite_for_pcre2(std::string_view pattern, const std::string& source) {
  return Rewriter(pattern, source).run();
}

PatternFinder find_regex(const std::string& pattern, const std::string& source) {
  auto regex = std::make_shared<const CompiledRegex>(pattern, source);
  return [regex](std::string_view text, std::vector<PatternPart>& out) { regex->find_all(text, out); };
}

}  // namespace apus::data
