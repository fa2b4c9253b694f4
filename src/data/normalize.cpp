#include "data/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "apus/base/error.h"
#include "apus/base/unicode.h"
#include "data/older_unicode.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

// A character on its way: `change` says how it relates to the input. Above 0: inserted after the last
// character taken; else it replaces the next one, and -change more are dropped.
struct Unit {
  char32_t code_point;
  int change;
  int combining_class;
};

int combining_class(char32_t code_point) {
  if (!unicode_class(code_point).is_combining()) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point))->combining_class;
}

enum class Mapping { kCanonical, kCompatibility };

void decompose(char32_t code_point, Mapping mapping, std::vector<Unit>& units) {
  const bool compatibility = mapping == Mapping::kCompatibility;
  if (!(compatibility ? has_older_compatibility(code_point) : has_older_canonical(code_point))) {
    units.push_back({code_point, 0, combining_class(code_point)});
    return;
  }
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts.data(),
                                             static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
  APUS_ASSERT(count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()), "decomposition of U+",
              static_cast<uint32_t>(code_point));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const auto part = static_cast<char32_t>(parts[static_cast<size_t>(i)]);
    units.push_back({part, i == 0 ? 0 : 1, combining_class(part)});
  }
}

// The one character that two compose to, or 0.
char32_t compose(char32_t first, char32_t second) {
  std::array<utf8proc_int32_t, 3> pair = {static_cast<utf8proc_int32_t>(first),
                                          static_cast<utf8proc_int32_t>(second), 0};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto count = utf8proc_normalize_utf32(pair.data(), 2, options);
  const auto whole = static_cast<char32_t>(pair[0]);
  return count == 1 && has_older_canonical(whole) ? whole : 0;
}

// Puts marks that follow one another into the order of their combining classes.
void reorder(std::vector<Unit>& units) {
  const auto is_mark = [](const Unit& unit) { return unit.combining_class != 0; };
  const auto less = [](const Unit& a, const Unit& b) { return a.combining_class < b.combining_class; };
  for (auto first = units.begin(); first != units.end();) {
    first = std::find_if(first, units.end(), is_mark);
    const auto last = std::find_if_not(first, units.end(), is_mark);
    std::stable_sort(first, last, less);
    first = last;
  }
}

// Composes in place: a starter takes every later mark (or starter) that nothing blocks from it.
void recompose(std::vector<Unit>& units) {
  size_t kept = 0;
  size_t starter = units.size();  // none yet
  int last_class = -1;            // of the last mark that stayed behind the starter
  for (const Unit unit : units) {
    const bool adjacent = last_class < 0;
    if (starter < kept && (adjacent || last_class < unit.combining_class)) {
      if (const char32_t whole = compose(units[starter].code_point, unit.code_point)) {
        units[starter].code_point = whole;
        units[starter].change += unit.change - 1;
        continue;
      }
    }
    if (unit.combining_class == 0) starter = kept;
    last_class = unit.combining_class == 0 ? -1 : unit.combining_class;
    units[kept++] = unit;
  }
  units.resize(kept);
}

// Whether a run needs no work: nothing in it decomposes or composes, and its marks are in order.
bool run_is_nfc(std::string_view run) {
  int last_class = 0;
  for (size_t at = 0; at < run.size();) {
    const CodePoint point = code_point_at(run.data() + at);
    const UnicodeClass traits = unicode_class(point.value);
    if (traits.is_nfc_unsure()) return false;
    const int current = traits.is_combining() ? combining_class(point.value) : 0;
    if (current != 0 && current < last_class) return false;
    last_class = current;
    at += point.length;
  }
  return true;
}

// Where the next run starts that may need work, and where it ends: it begins at the last character before
// which nothing can move, and goes on up to the next such character. Both are the text's size if there is
// none.
ByteRange next_run(std::string_view text, size_t from) {
  size_t boundary = from;
  size_t at = from;
  const auto is_boundary = [&](const CodePoint& point) {
    return point.value < 0x300 || unicode_class(point.value).is_nfc_boundary();
  };
  while (at < text.size()) {
    uint64_t word = 0;
    if (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080ULL) == 0) {
        at += sizeof(word);
        boundary = at - 1;
        continue;
      }
    }
    const CodePoint point = code_point_at(text.data() + at);
    if (!is_boundary(point)) break;
    boundary = at;
    at += point.length;
  }
  if (at >= text.size()) return {static_cast<uint32_t>(text.size()), static_cast<uint32_t>(text.size())};
  while (at < text.size()) {
    const CodePoint point = code_point_at(text.data() + at);
    if (is_boundary(point)) break;
    at += point.length;
  }
  return {static_cast<uint32_t>(boundary), static_cast<uint32_t>(at)};
}

void copy_bytes(const AlignedText& from, size_t begin, size_t end, AlignedText& to) {
  to.text.append(from.text, begin, end - begin);
  if (from.tracked) {
    const auto first = from.origin.begin();
    to.origin.insert(to.origin.end(), first + static_cast<ptrdiff_t>(begin),
                     first + static_cast<ptrdiff_t>(end));
  }
}

// Appends the normalised run; origins follow the rule that Unit states.
void append_units(const AlignedText& from, ByteRange run, const std::vector<Unit>& units, AlignedText& to) {
  size_t taken = run.begin;
  const auto take = [&] {
    if (taken < run.end) taken += code_point_at(from.text.data() + taken).length;
  };
  for (const Unit& unit : units) {
    const size_t before = to.text.size();
    append_utf8(to.text, unit.code_point);
    const bool inserted = unit.change > 0 || taken >= run.end;
    if (from.tracked) {
      const size_t place = inserted ? (taken > 0 ? taken - 1 : 0) : taken;
      to.origin.insert(to.origin.end(), to.text.size() - before, from.origin[place]);
    }
    if (inserted) continue;
    take();
    for (int dropped = unit.change; dropped < 0; ++dropped) take();
  }
}

size_t first_beyond_ascii(std::string_view text, size_t from) {
  while (from < text.size()) {
    uint64_t word = 0;
    if (from + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + from, sizeof(word));
      if ((word & 0x8080808080808080ULL) == 0) {
        from += sizeof(word);
        continue;
      }
    }
    if (static_cast<unsigned char>(text[from]) >= 0x80) break;
    ++from;
  }
  return from;
}

enum class Composition { kDecomposed, kComposed };

void normalize_run(const AlignedText& from, ByteRange run, Mapping mapping, Composition composition,
                   AlignedText& to) {
  std::vector<Unit> units;
  for (size_t at = run.begin; at < run.end;) {
    const CodePoint point = code_point_at(from.text.data() + at);
    decompose(point.value, mapping, units);
    at += point.length;
  }
  reorder(units);
  if (composition == Composition::kComposed) recompose(units);
  append_units(from, run, units, to);
}

}  // namespace

AlignedText AlignedText::track(std::string_view part, uint32_t base) {
  AlignedText tracked{std::string(part), true, {}, base};
  tracked.origin.reserve(part.size());
  for (size_t at = 0; at < part.size();) {
    const uint32_t length = code_point_at(part.data() + at).length;
    const uint32_t begin = base + static_cast<uint32_t>(at);
    tracked.origin.insert(tracked.origin.end(), length, {begin, begin + length});
    at += length;
  }
  return tracked;
}

bool NfcNormalizer::keeps(std::string_view text) const {
  for (size_t at = 0; at < text.size();) {
    const ByteRange run = next_run(text, at);
    if (!run_is_nfc(text.substr(run.begin, run.end - run.begin))) return false;
    at = run.end;
  }
  return true;
}

void NfcNormalizer::apply(AlignedText& text) const {
  if (keeps(text.text)) return;
  AlignedText out{{}, text.tracked, {}, text.base};
  out.text.reserve(text.text.size());
  for (size_t at = 0; at < text.text.size();) {
    const ByteRange run = next_run(text.text, at);
    copy_bytes(text, at, run.begin, out);
    if (run_is_nfc(std::string_view(text.text).substr(run.begin, run.end - run.begin)))
      copy_bytes(text, run.begin, run.end, out);
    else
      normalize_run(text, run, Mapping::kCanonical, Composition::kComposed, out);
    at = run.end;
  }
  text = std::move(out);
}

bool UnicodeFormNormalizer::keeps(std::string_view text) const {
  return first_beyond_ascii(text, 0) == text.size();
}

// Runs start at an ASCII character, which what follows may compose with, and end before the next one.
void UnicodeFormNormalizer::apply(AlignedText& text) const {
  const Mapping mapping = form_ == Form::kNfd ? Mapping::kCanonical : Mapping::kCompatibility;
  const Composition composition = form_ == Form::kNfkc ? Composition::kComposed : Composition::kDecomposed;
  AlignedText out{{}, text.tracked, {}, text.base};
  out.text.reserve(text.text.size());
  const size_t size = text.text.size();
  for (size_t at = 0; at < size;) {
    const size_t beyond = first_beyond_ascii(text.text, at);
    const size_t begin = beyond > at && beyond < size ? beyond - 1 : beyond;
    copy_bytes(text, at, begin, out);
    size_t end = beyond;
    while (end < size && static_cast<unsigned char>(text.text[end]) >= 0x80) ++end;
    if (begin < end)
      normalize_run(text, {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, mapping, composition,
                    out);
    at = end;
  }
  text = std::move(out);
}

bool SequenceNormalizer::keeps(std::string_view text) const {
  return std::all_of(steps_.begin(), steps_.end(), [text](const auto& step) { return step->keeps(text); });
}

void SequenceNormalizer::apply(AlignedText& text) const {
  for (const auto& step : steps_) step->apply(text);
}

}  // namespace apus::data
