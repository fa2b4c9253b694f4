#include <algorithm>

#include "data/jinja_format.h"
#include "data/jinja_methods.h"
#include "data/jinja_operators.h"
#include "data/jinja_runtime.h"
#include "data/jinja_split.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

Value list_of(const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::string(std::string(part)));
  return Value::list(std::move(items));
}

// ---- changes of case

using TextChange = std::string (*)(std::string_view);
template <TextChange kChange>
Value changed(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("str method", args, {});
  runtime.grow(self.text().size() * 3);
  return Value::string(kChange(self.text()));
}

// ---- strip

template <Side kSide>
Value stripped(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("strip", args, {"chars"});
  runtime.grow(self.text().size());
  return Value::string(
      std::string(bound.is_set(0) ? strip(self.text(), bound.text(0), kSide) : strip(self.text(), kSide)));
}

Value remove_prefix(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("removeprefix", args, {"prefix"}, 1);
  std::string_view text = self.text();
  if (text.starts_with(bound.text(0))) text.remove_prefix(bound.text(0).size());
  return Value::string(std::string(text));
}

Value remove_suffix(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("removesuffix", args, {"suffix"}, 1);
  std::string_view text = self.text();
  if (text.ends_with(bound.text(0))) text.remove_suffix(bound.text(0).size());
  return Value::string(std::string(text));
}

// ---- search

// The part of a text that the optional arguments start and end select, as byte offsets.
struct Window {
  size_t begin = 0;
  std::string_view text;
  bool valid = true;  // start is not past the end
};

Window window(const std::string& text, const Arguments& args) {
  if (!args.is_set(1) && !args.is_set(2)) return {0, text, true};
  const auto size = static_cast<int64_t>(count_code_points(text));
  const Value start = args.value(1, Value::none());
  const SliceRange range = slice_range(size, start, args.value(2, Value::none()), Value::none());
  const bool valid = start.is_none() || to_index(start) <= size;
  const size_t begin = byte_offset(text, static_cast<size_t>(range.start));
  const std::string_view rest = std::string_view(text).substr(begin);
  return {begin, rest.substr(0, byte_offset(rest, static_cast<size_t>(range.count))), valid};
}

enum class Direction { kForward, kBackward };

int64_t find_in(Runtime& runtime, const Value& self, CallArgs& args, Direction direction) {
  Arguments bound("find", args, {"sub", "start", "end"}, 1);
  const std::string& text = self.text();
  runtime.grow(text.size());
  const Window in = window(text, bound);
  if (!in.valid) return -1;
  const size_t at =
      direction == Direction::kForward ? in.text.find(bound.text(0)) : in.text.rfind(bound.text(0));
  if (at == std::string_view::npos) return -1;
  return static_cast<int64_t>(count_code_points(std::string_view(text).substr(0, in.begin + at)));
}

template <Direction kDirection>
Value find(Runtime& runtime, const Value& self, CallArgs& args) {
  return Value::integer(find_in(runtime, self, args, kDirection));
}

template <Direction kDirection>
Value index(Runtime& runtime, const Value& self, CallArgs& args) {
  const int64_t at = find_in(runtime, self, args, kDirection);
  if (at < 0) fail(JinjaErrorKind::kOther, "ValueError: substring not found");
  return Value::integer(at);
}

Value count(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("count", args, {"sub", "start", "end"}, 1);
  runtime.grow(self.text().size());
  const Window in = window(self.text(), bound);
  const std::string& sub = bound.text(0);
  if (!in.valid) return Value::integer(0);
  if (sub.empty()) return Value::integer(static_cast<int64_t>(count_code_points(in.text)) + 1);
  int64_t found = 0;
  for (size_t at = in.text.find(sub); at != std::string_view::npos; at = in.text.find(sub, at + sub.size()))
    ++found;
  return Value::integer(found);
}

bool has_affix(std::string_view text, const Value& affix, bool prefix) {
  if (!affix.is_string()) {
    fail_type(std::string(prefix ? "startswith" : "endswith") +
              " first arg must be str or a tuple of str, not " + type_name(affix));
  }
  return prefix ? text.starts_with(affix.text()) : text.ends_with(affix.text());
}

Value has_affixes(const Value& self, CallArgs& args, bool prefix) {
  Arguments bound(prefix ? "startswith" : "endswith", args, {"affix", "start", "end"}, 1);
  const Window in = window(self.text(), bound);
  const Value& affix = bound.at(0);
  if (affix.type() != Type::kTuple) return Value::boolean(in.valid && has_affix(in.text, affix, prefix));
  const auto& all = affix.items();
  return Value::boolean(in.valid && std::any_of(all.begin(), all.end(), [&](const Value& a) {
                          return has_affix(in.text, a, prefix);
                        }));
}

Value starts_with(Runtime&, const Value& self, CallArgs& args) {
  return has_affixes(self, args, true);
}
Value ends_with(Runtime&, const Value& self, CallArgs& args) {
  return has_affixes(self, args, false);
}

// ---- split and join

Value split_at(Runtime& runtime, const Value& self, CallArgs& args, Direction direction) {
  Arguments bound("split", args, {"sep", "maxsplit"});
  runtime.grow(self.text().size());
  const int64_t limit = bound.integer(1, -1);
  const bool forward = direction == Direction::kForward;
  if (!bound.is_set(0)) {
    return list_of(forward ? split_spaces(self.text(), limit) : split_spaces_right(self.text(), limit));
  }
  const std::string& separator = bound.text(0);
  if (separator.empty()) fail(JinjaErrorKind::kOther, "ValueError: empty separator");
  return list_of(forward ? split(self.text(), separator, limit) : split_right(self.text(), separator, limit));
}

Value split_forward(Runtime& runtime, const Value& self, CallArgs& args) {
  return split_at(runtime, self, args, Direction::kForward);
}
Value split_backward(Runtime& runtime, const Value& self, CallArgs& args) {
  return split_at(runtime, self, args, Direction::kBackward);
}

Value lines(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("splitlines", args, {"keepends"});
  runtime.grow(self.text().size());
  return list_of(split_lines(self.text(), bound.integer(0, 0) != 0));
}

Value partition_at(const Value& self, CallArgs& args, Direction direction) {
  Arguments bound("partition", args, {"sep"}, 1);
  const std::string& text = self.text();
  const std::string& separator = bound.text(0);
  if (separator.empty()) fail(JinjaErrorKind::kOther, "ValueError: empty separator");
  const bool forward = direction == Direction::kForward;
  const size_t at = forward ? text.find(separator) : text.rfind(separator);
  const auto part = [](std::string s) { return Value::string(std::move(s)); };
  if (at == std::string::npos) {
    return forward ? Value::tuple({part(text), part(""), part("")})
                   : Value::tuple({part(""), part(""), part(text)});
  }
  return Value::tuple({part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))});
}

Value partition(Runtime&, const Value& self, CallArgs& args) {
  return partition_at(self, args, Direction::kForward);
}
Value rpartition(Runtime&, const Value& self, CallArgs& args) {
  return partition_at(self, args, Direction::kBackward);
}

Value join(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("join", args, {"iterable"}, 1);
  std::string out;
  const Sequence items(runtime, bound.at(0));
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      fail_type("sequence item " + std::to_string(i) + ": expected str instance, " + type_name(items[i]) +
                " found");
    }
    const std::string_view separator = i == 0 ? std::string_view() : std::string_view(self.text());
    runtime.require_size(out.size() + separator.size() + items[i].text().size());
    out.append(separator).append(items[i].text());
  }
  runtime.grow(out.size());
  return Value::string(std::move(out));
}

Value replaced(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("replace", args, {"old", "new", "count"}, 2);
  return Value::string(replace(runtime, self.text(), bound.text(0), bound.text(1), bound.integer(2, -1)));
}

// ---- padding

// Pads to a width; `left` of the missing characters go before the text.
Value padded(Runtime& runtime, const Value& self, Arguments& args,
             int64_t (*left)(int64_t missing, int64_t width)) {
  const int64_t width = args.integer(0, 0);
  const std::string fill = args.has(1) ? args.text(1) : " ";
  if (count_code_points(fill) != 1) fail_type("The fill character must be exactly one character long");
  const int64_t missing = width - static_cast<int64_t>(count_code_points(self.text()));
  if (missing <= 0) return self;
  runtime.grow_times(missing, fill.size());
  const int64_t before = left(missing, width);
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += self.text();
  for (int64_t i = before; i < missing; ++i) out += fill;
  return Value::string(std::move(out));
}

Value center(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("center", args, {"width", "fillchar"}, 1);
  return padded(runtime, self, bound,
                [](int64_t missing, int64_t width) { return missing / 2 + (missing & width & 1); });
}

Value ljust(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("ljust", args, {"width", "fillchar"}, 1);
  return padded(runtime, self, bound, [](int64_t, int64_t) -> int64_t { return 0; });
}

Value rjust(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("rjust", args, {"width", "fillchar"}, 1);
  return padded(runtime, self, bound, [](int64_t missing, int64_t) { return missing; });
}

Value zfill(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("zfill", args, {"width"}, 1);
  const std::string& text = self.text();
  const int64_t missing = bound.integer(0, 0) - static_cast<int64_t>(count_code_points(text));
  if (missing <= 0) return self;
  runtime.grow_times(missing, 1);
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return Value::string(text.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') +
                       text.substr(sign));
}

Value expand_tabs(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("expandtabs", args, {"tabsize"});
  const int64_t tab = bound.integer(0, 8);
  std::string out;
  int64_t column = 0;
  for (const char c : self.text()) {
    if (c == '\t') {
      const int64_t spaces = tab > 0 ? tab - column % tab : 0;
      runtime.grow_times(spaces, 1);
      runtime.require_size(out.size() + static_cast<size_t>(spaces));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    out += c;
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    column = c == '\n' || c == '\r' ? 0 : column + (continues ? 0 : 1);
  }
  return Value::string(std::move(out));
}

// ---- questions

using CodePointTest = bool (*)(uint32_t);
template <CodePointTest kTest>
Value all_are(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("str method", args, {});
  const std::vector<uint32_t> cps = decode(self.text());
  return Value::boolean(!cps.empty() && std::all_of(cps.begin(), cps.end(), kTest));
}

Value is_ascii_text(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("isascii", args, {});
  return Value::boolean(is_ascii(self.text()));
}

Value is_printable_text(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("isprintable", args, {});
  const std::vector<uint32_t> cps = decode(self.text());
  return Value::boolean(std::all_of(cps.begin(), cps.end(), is_printable));
}

Value is_identifier_text(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("isidentifier", args, {});
  const std::vector<uint32_t> cps = decode(self.text());
  bool good = !cps.empty();
  for (size_t i = 0; i < cps.size(); ++i) good = good && is_identifier(cps[i], i == 0);
  return Value::boolean(good);
}

Value is_lower_text(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("islower", args, {});
  return Value::boolean(is_lower_case(self.text()));
}

Value is_upper_text(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("isupper", args, {});
  return Value::boolean(is_upper_case(self.text()));
}

Value is_title_text(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("istitle", args, {});
  bool any = false;
  bool after_cased = false;
  for (const uint32_t cp : decode(self.text())) {
    const bool upper = is_upper(cp) || is_title(cp);
    const bool lower = is_lower(cp);
    if ((upper && after_cased) || (lower && !after_cased)) return Value::boolean(false);
    after_cased = upper || lower;
    any = any || after_cased;
  }
  return Value::boolean(any);
}

// ---- format

Value format(Runtime& runtime, const Value& self, CallArgs& args) {
  return Value::string(format_braces(runtime, self.text(), args));
}

Value format_map(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("format_map", args, {"mapping"}, 1);
  if (!bound.at(0).is_dict()) fail_type("format_map() expected a mapping, got " + type_name(bound.at(0)));
  CallArgs named;
  for (const auto& [key, value] : bound.at(0).as_dict().entries) {
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  }
  return Value::string(format_braces(runtime, self.text(), named));
}

constexpr Method kMethods[] = {
    {"upper", changed<to_upper>},
    {"lower", changed<to_lower>},
    {"capitalize", changed<capitalize>},
    {"title", changed<to_title>},
    {"swapcase", changed<swap_case>},
    {"casefold", changed<case_fold>},
    {"strip", stripped<Side::kBoth>},
    {"lstrip", stripped<Side::kLeft>},
    {"rstrip", stripped<Side::kRight>},
    {"removeprefix", remove_prefix},
    {"removesuffix", remove_suffix},
    {"find", find<Direction::kForward>},
    {"rfind", find<Direction::kBackward>},
    {"index", index<Direction::kForward>},
    {"rindex", index<Direction::kBackward>},
    {"count", count},
    {"startswith", starts_with},
    {"endswith", ends_with},
    {"split", split_forward},
    {"rsplit", split_backward},
    {"splitlines", lines},
    {"partition", partition},
    {"rpartition", rpartition},
    {"join", join},
    {"replace", replaced},
    {"center", center},
    {"ljust", ljust},
    {"rjust", rjust},
    {"zfill", zfill},
    {"expandtabs", expand_tabs},
    {"isalpha", all_are<is_alpha>},
    {"isalnum", all_are<is_alnum>},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isnumeric", all_are<is_numeric>},
    {"isspace", all_are<is_space>},
    {"isascii", is_ascii_text},
    {"isprintable", is_printable_text},
    {"isidentifier", is_identifier_text},
    {"islower", is_lower_text},
    {"isupper", is_upper_text},
    {"istitle", is_title_text},
    {"format", format},
    {"format_map", format_map},
};

}  // namespace

const Method* find_string_method(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const Method& m) { return m.name == name; });
  return found == std::end(kMethods) ? nullptr : found;
}

}  // namespace apus::data::jinja
