#include "data/jinja_number.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "data/jinja_operators.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

bool is_digit_of(char c, uint32_t base) {
  return BigInt::parse({&c, 1}, base).has_value();
}

// Digits without underscores; nothing where an underscore is not between two digits.
std::optional<std::string> plain_digits(std::string_view text, uint32_t base) {
  std::string digits;
  bool after_digit = false;
  for (const char c : text) {
    const bool digit = is_digit_of(c, base);
    if (!digit && !(c == '_' && after_digit)) return std::nullopt;
    if (digit) digits += c;
    after_digit = digit;
  }
  return after_digit ? std::optional(digits) : std::nullopt;
}

// Takes off 0x, 0o or 0b and gives the base that it stands for; 10 if there is none.
uint32_t take_prefix(std::string_view& text, int64_t base) {
  const char letter = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const uint32_t named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  if (named == 10 || (base != 0 && base != named)) return base == 0 ? 10 : static_cast<uint32_t>(base);
  text.remove_prefix(text.size() > 2 && text[2] == '_' ? 3 : 2);
  return named;
}

std::optional<Value> integer_of_text(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = strip(text, Side::kBoth);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const uint32_t radix = take_prefix(text, base);
  const auto digits = text.size() > 4300 ? std::nullopt : plain_digits(text, radix);
  if (!digits) return std::nullopt;
  BigInt number = *BigInt::parse(*digits, radix);
  return Value::big(negative ? -number : number);
}

std::optional<double> float_of_text(std::string_view text) {
  text = strip(text, Side::kBoth);
  const auto is_digit_at = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) {
      return std::nullopt;
    }
  }
  const std::string lower = to_lower(plain);
  // strtod takes more than Python: hexadecimal floats and nan(...).
  if (plain.empty() || lower.find_first_of("xp(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  return end == plain.c_str() + plain.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<double> parse_float(const Value& value) {
  if (value.is_number()) return to_double(value);
  return value.is_string() ? float_of_text(value.text()) : std::nullopt;
}

std::optional<Value> parse_integer(const Value& value, int64_t base) {
  if (value.is_int()) return plus(value);
  if (value.is_string()) {
    if (auto number = integer_of_text(value.text(), base)) return number;
  }
  const auto real = parse_float(value);
  if (!real || !std::isfinite(*real)) return std::nullopt;
  return Value::big(BigInt::from_double(*real));
}

Value round_integer(Runtime& runtime, const Value& value, int64_t digits) {
  if (digits < -400) return Value::integer(0);
  const Value unit = binary(runtime, BinaryOp::kPower, Value::integer(10), Value::integer(-digits));
  const Value half = binary(runtime, BinaryOp::kFloorDivide, unit, Value::integer(2));
  const Value rest = binary(runtime, BinaryOp::kModulo, value, unit);
  const Value down = binary(runtime, BinaryOp::kSubtract, value, rest);
  const int order = compare_numbers(rest, half);
  const Value multiple = binary(runtime, BinaryOp::kFloorDivide, down, unit);
  const bool odd = truth(binary(runtime, BinaryOp::kModulo, multiple, Value::integer(2)));
  return order > 0 || (order == 0 && odd) ? binary(runtime, BinaryOp::kAdd, down, unit) : down;
}

std::string format_file_size(double bytes, bool binary) {
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return "1 Byte";
  if (!std::isfinite(bytes))
    fail(JinjaErrorKind::kOther, "OverflowError: cannot convert float infinity or NaN to integer");
  if (bytes < base) return BigInt::from_double(bytes).to_string() + " Bytes";
  const char* const units[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < std::size(units) && bytes >= unit; ++i) unit *= base;
  char text[512];
  std::snprintf(text, sizeof text, "%.1f ", base * bytes / unit);
  const std::string letter = binary && i == 0 ? "K" : units[i];
  return text + letter + (binary ? "iB" : "B");
}

}  // namespace apus::data::jinja
