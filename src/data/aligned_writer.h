#pragma once

#include <string>
#include <string_view>

#include "apus/base/error.h"
#include "apus/base/unicode.h"
#include "data/normalize.h"

namespace apus::data {

/// Builds the text that a change makes out of another, with its origins where that one is tracked.
/// Throws: DataError if it would get longer than that one may.
class AlignedWriter final {
 public:
  explicit AlignedWriter(const AlignedText& from)
      : from_(from), out_{{}, from.tracked, {}, from.base, from.most_bytes} {
    out_.text.reserve(from.text.size());
    if (from.tracked) out_.origin.reserve(from.origin.size());
  }

  /// Bytes [begin, end) as they are.
  void copy(size_t begin, size_t end) {
    out_.text.append(from_.text, begin, end - begin);
    if (!from_.tracked) return;
    const auto first = from_.origin.begin();
    out_.origin.insert(out_.origin.end(), first + static_cast<ptrdiff_t>(begin),
                       first + static_cast<ptrdiff_t>(end));
  }

  /// Bytes that stand for what the old byte `at` stands for.
  void put(std::string_view text, size_t at) {
    make_room(text.size());
    out_.text += text;
    if (from_.tracked) out_.origin.insert(out_.origin.end(), text.size(), from_.origin[at]);
  }
  void put(char32_t code_point, size_t at) {
    const size_t before = out_.text.size();
    append_utf8(out_.text, code_point);
    if (from_.tracked) out_.origin.insert(out_.origin.end(), out_.text.size() - before, from_.origin[at]);
  }

  /// Bytes inserted behind the old byte before `at`: they stand for what that one does, and at the start for
  /// nothing there.
  void insert(std::string_view text, size_t at) {
    if (at > 0) return put(text, at - 1);
    make_room(text.size());
    out_.text += text;
    if (from_.tracked) out_.origin.insert(out_.origin.end(), text.size(), {from_.base, from_.base});
  }

  AlignedText finish() { return std::move(out_); }

 private:
  // Steps that each make a text longer could together take all memory.
  void make_room(size_t bytes) const {
    if (bytes > out_.most_bytes || out_.text.size() > out_.most_bytes - bytes)
      throw DataError("text", 0,
                      "grows to more than " + std::to_string(out_.most_bytes) +
                          " bytes as the tokenizer normalises it; its normalizers put in too much");
  }

  const AlignedText& from_;
  AlignedText out_;
};

}  // namespace apus::data
