#include "data/charsmap.h"

#include <utf8proc.h>

#include <algorithm>

#include "apus/base/error.h"
#include "apus/base/unicode.h"
#include "data/aligned_writer.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

// Longer clusters are taken character by character.
constexpr size_t kMostClusterBytes = 5;

uint32_t read_word(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i)
    value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

// A unit of the trie, as Darts-clone packs it.
struct Unit {
  uint32_t bits;
  bool has_leaf() const { return (bits >> 8 & 1) != 0; }
  uint32_t value() const { return bits & 0x7FFFFFFF; }
  uint32_t label() const { return bits & 0x800000FF; }
  uint32_t offset() const { return (bits >> 10) << ((bits & 0x200) >> 6); }
};

// The end of the grapheme cluster that starts at `at`.
size_t cluster_end(std::string_view text, size_t at) {
  CodePoint point = code_point_at(text.data() + at);
  utf8proc_int32_t state = 0;
  for (at += point.length; at < text.size(); at += point.length) {
    const auto before = static_cast<utf8proc_int32_t>(point.value);
    point = code_point_at(text.data() + at);
    if (utf8proc_grapheme_break_stateful(before, static_cast<utf8proc_int32_t>(point.value), &state)) break;
  }
  return at;
}

}  // namespace

CharsmapNormalizer::CharsmapNormalizer(std::string_view blob, const std::string& source,
                                       const std::vector<std::string>& kept) {
  for (const std::string& string : kept) kept_.add(string, {.id = 0, .content = string});
  const auto refuse = [&](const std::string& reason) {
    throw DataError(source, 0, "precompiled_charsmap " + reason);
  };
  if (blob.size() < 4) refuse("has " + std::to_string(blob.size()) + " bytes, expected at least 4");
  const uint32_t trie_bytes = read_word(blob, 0);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > blob.size() - 4)
    refuse("gives its trie " + std::to_string(trie_bytes) + " of its " + std::to_string(blob.size()) +
           " bytes");
  trie_.reserve(trie_bytes / 4);
  for (size_t at = 0; at < trie_bytes; at += 4) trie_.push_back(read_word(blob, 4 + at));
  strings_ = blob.substr(4 + trie_bytes);
  if (!is_valid_utf8(strings_)) refuse("has strings that are not UTF-8");
}

// The shortest entry that the chunk begins with.
CharsmapNormalizer::Replacement CharsmapNormalizer::find(std::string_view chunk) const {
  size_t node = Unit{trie_[0]}.offset();
  for (const char character : chunk) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte == 0) break;
    node ^= byte;
    if (node >= trie_.size()) break;
    const Unit unit{trie_[node]};
    if (unit.label() != byte) break;
    node ^= unit.offset();
    if (node >= trie_.size()) break;
    if (!unit.has_leaf()) continue;
    const uint32_t begin = Unit{trie_[node]}.value();
    // A string that begins inside a character is a broken file's: it counts as no entry.
    if (begin > strings_.size() ||
        (begin < strings_.size() && (static_cast<unsigned char>(strings_[begin]) & 0xC0) == 0x80))
      return {};
    const size_t end = std::min(strings_.find('\0', begin), strings_.size());
    return {true, std::string_view(strings_).substr(begin, end - begin)};
  }
  return {};
}

// Calls visit(begin, end, replacement) for all of the text, piece by piece.
template <typename Visit>
void CharsmapNormalizer::each_chunk(std::string_view text, Visit&& visit) const {
  const ByteRange whole{0, static_cast<uint32_t>(text.size())};
  if (kept_.empty()) return each_chunk_of(text, whole, visit);
  std::vector<TextPart> parts;
  kept_.split(text, parts);
  for (const TextPart& part : parts) {
    if (part.id < 0)
      each_chunk_of(text, part.range, visit);
    else
      visit(part.range.begin, part.range.end, Replacement{});
  }
}

template <typename Visit>
void CharsmapNormalizer::each_chunk_of(std::string_view text, ByteRange part, Visit&& visit) const {
  text = text.substr(0, part.end);
  for (size_t at = part.begin; at < text.size();) {
    const size_t end = cluster_end(text, at);
    if (end - at <= kMostClusterBytes) {
      if (const Replacement whole = find(text.substr(at, end - at)); whole.found) {
        visit(at, end, whole);
        at = end;
        continue;
      }
    }
    while (at < end) {
      const size_t next = at + code_point_at(text.data() + at).length;
      visit(at, next, find(text.substr(at, next - at)));
      at = next;
    }
  }
}

bool CharsmapNormalizer::keeps(std::string_view text) const {
  bool same = true;
  each_chunk(text,
             [&](size_t, size_t, const Replacement& replacement) { same = same && !replacement.found; });
  return same;
}

// Of what takes a chunk's place, characters stand for its characters one by one, those left over for the
// last.
void CharsmapNormalizer::apply(AlignedText& text) const {
  AlignedWriter out(text);
  each_chunk(text.text, [&](size_t begin, size_t end, const Replacement& replacement) {
    if (!replacement.found) return out.copy(begin, end);
    size_t at = begin;
    for (size_t i = 0; i < replacement.text.size();) {
      const uint32_t length = code_point_at(replacement.text.data() + i).length;
      const std::string_view character = replacement.text.substr(i, length);
      if (at < end) {
        out.put(character, at);
        at += code_point_at(text.text.data() + at).length;
      } else {
        out.insert(character, at);
      }
      i += length;
    }
  });
  text = out.finish();
}

std::string decode_base64(std::string_view text, const std::string& source, const std::string& where) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto refuse = [&] { throw DataError(source, 0, where + " is no base64 text"); };
  if (text.size() % 4 != 0) refuse();
  while (text.ends_with('=') && text.size() % 4 != 2) text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int held = 0;
  for (const char character : text) {
    const size_t digit = kDigits.find(character);
    if (digit == std::string_view::npos) refuse();
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>(bits >> held & 0xFF);
  }
  return out;
}

}  // namespace apus::data
