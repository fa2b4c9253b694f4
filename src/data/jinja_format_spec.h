#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/jinja_objects.h"

namespace apus::data::jinja {

/// How one field is laid out; common to % and str.format.
struct FieldSpec {
  uint32_t fill = ' ';
  char align = '\0';       // < > ^ =; '\0': by type
  char sign = '-';         // + - or space
  bool alternate = false;  // #
  bool zero = false;       // pad with zeros behind the sign
  int64_t width = 0;
  char grouping = '\0';  // , or _
  int64_t precision = -1;
  char type = '\0';
};

/// A number of characters to pad to, from a field; throws kOther where it is absurd.
int64_t parse_count(std::string_view text, size_t& pos);

/// Lays out text; `numeric` aligns right by default.
std::string pad_field(Runtime& runtime, std::string text, const FieldSpec& spec, bool numeric);
/// An integer by type d, b, o, x, X, c, n or a float's type.
std::string format_integer(Runtime& runtime, const Value& value, const FieldSpec& spec);
/// A float by type e, E, f, F, g, G, % or none.
std::string format_float(Runtime& runtime, double value, const FieldSpec& spec);

}  // namespace apus::data::jinja
