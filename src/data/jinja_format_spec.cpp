#include "data/jinja_format_spec.h"

#include <cmath>
#include <cstdio>

#include "data/jinja_runtime.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

constexpr int64_t kMaxPrecision = 400;

void append_fill(std::string& out, uint32_t fill, int64_t count) {
  for (int64_t i = 0; i < count; ++i) append_code_point(out, fill);
}

// Separators between groups of the digits before the point.
std::string grouped(const std::string& digits, char separator, size_t group) {
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

std::string sign_text(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

// Sign, prefix and digits, with zeros between where asked.
std::string assemble(Runtime& runtime, const std::string& sign, std::string digits, const FieldSpec& spec) {
  const auto width = static_cast<int64_t>(sign.size() + digits.size());
  const bool inner = spec.zero || spec.align == '=';
  if (inner && spec.width > width && (spec.align == '\0' || spec.align == '=')) {
    runtime.grow_times(spec.width, 4);
    std::string fill;
    append_fill(fill, spec.zero ? '0' : spec.fill, spec.width - width);
    return sign + fill + digits;
  }
  return pad_field(runtime, sign + digits, spec, true);
}

std::string digits_of(const BigInt& magnitude, char type) {
  switch (type) {
    case 'b':
      return magnitude.to_string(2);
    case 'o':
      return magnitude.to_string(8);
    case 'x':
      return magnitude.to_string(16);
    case 'X':
      return to_upper(magnitude.to_string(16));
    default:
      return magnitude.to_string();
  }
}

// The shortest digits that read back, or precision significant ones, as type '' of a float does.
std::string general_float(double value, const FieldSpec& spec) {
  if (spec.precision < 0) return repr_float(value);
  char text[64 + kMaxPrecision];
  std::snprintf(text, sizeof text, "%.*g", static_cast<int>(std::max<int64_t>(spec.precision, 1)), value);
  std::string out = text;
  if (out.find_first_of(".en") == std::string::npos) out += ".0";
  return out;
}

std::string printed_float(double value, const FieldSpec& spec) {
  if (spec.type == '\0') return general_float(value, spec);
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const std::string format =
      std::string("%") + (spec.alternate ? "#" : "") + ".*" + (spec.type == '%' ? 'f' : spec.type);
  char text[512 + kMaxPrecision];
  std::snprintf(text, sizeof text, format.c_str(), precision, spec.type == '%' ? value * 100 : value);
  return spec.type == '%' ? std::string(text) + "%" : text;
}

}  // namespace

int64_t parse_count(std::string_view text, size_t& pos) {
  int64_t count = 0;
  while (pos < text.size() && text[pos] >= '0' && text[pos] <= '9') {
    count = count * 10 + (text[pos++] - '0');
    if (count > (1 << 30))
      fail(JinjaErrorKind::kOther, "ValueError: too many decimal digits in format string");
  }
  return count;
}

std::string pad_field(Runtime& runtime, std::string text, const FieldSpec& spec, bool numeric) {
  const auto size = static_cast<int64_t>(count_code_points(text));
  if (spec.width <= size) return text;
  runtime.grow_times(spec.width, 4);
  const int64_t space = spec.width - size;
  const char align = spec.align == '\0' || spec.align == '=' ? (numeric ? '>' : '<') : spec.align;
  const int64_t before = align == '>' ? space : align == '^' ? space / 2 : 0;
  std::string out;
  append_fill(out, spec.fill, before);
  out += text;
  append_fill(out, spec.fill, space - before);
  return out;
}

std::string format_integer(Runtime& runtime, const Value& value, const FieldSpec& spec) {
  const bool as_float =
      std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != '\0';
  if (as_float) return format_float(runtime, to_double(value), spec);
  const BigInt number = value.is_small_int() ? BigInt(value.as_integer()) : value.as_big();
  if (spec.type == 'c') {
    const bool valid = number.fits_int64() && number.to_int64() >= 0 && number.to_int64() < 0x110000;
    if (!valid) fail(JinjaErrorKind::kOther, "OverflowError: %c arg not in range(0x110000)");
    std::string text;
    append_code_point(text, static_cast<uint32_t>(number.to_int64()));
    return pad_field(runtime, text, spec, true);
  }
  std::string digits = digits_of(number.is_negative() ? -number : number, spec.type);
  const auto missing = spec.precision - static_cast<int64_t>(digits.size());
  if (missing > 0) digits.insert(0, static_cast<size_t>(std::min(missing, kMaxPrecision)), '0');
  const bool based = std::string_view("boxX").find(spec.type) != std::string_view::npos && spec.type != '\0';
  if (spec.grouping != '\0') digits = grouped(digits, spec.grouping, based ? 4 : 3);
  std::string sign = sign_text(number.is_negative(), spec.sign);
  if (spec.alternate && based) sign += std::string("0") + spec.type;
  return assemble(runtime, sign, std::move(digits), spec);
}

std::string format_float(Runtime& runtime, double value, const FieldSpec& spec) {
  if (spec.precision > kMaxPrecision) fail(JinjaErrorKind::kLimit, "precision too big in a format");
  if (std::string_view("eEfFgG%").find(spec.type) == std::string_view::npos && spec.type != '\0') {
    fail(JinjaErrorKind::kOther,
         std::string("ValueError: Unknown format code '") + spec.type + "' for object of type 'float'");
  }
  std::string digits = printed_float(std::fabs(value), spec);
  if (spec.grouping != '\0') digits = grouped(digits, spec.grouping, 3);
  return assemble(runtime, sign_text(std::signbit(value), spec.sign), std::move(digits), spec);
}

}  // namespace apus::data::jinja
