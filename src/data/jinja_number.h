#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/jinja_objects.h"

/// Python's conversions between numbers and texts, for the filters int, float, round and filesizeformat.
namespace apus::data::jinja {

/// int(value, base), and where that fails int(float(value)); nothing where both do.
std::optional<Value> parse_integer(const Value& value, int64_t base);
/// float(value); nothing where it fails.
std::optional<double> parse_float(const Value& value);
/// round() of an integer to -digits zeros, half to even.
Value round_integer(Runtime& runtime, const Value& value, int64_t digits);
/// "13 Bytes", "4.1 MB", "1.0 KiB".
std::string format_file_size(double bytes, bool binary);

}  // namespace apus::data::jinja
