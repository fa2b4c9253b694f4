#include "data/jinja_operators.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "data/jinja_format.h"
#include "data/jinja_runtime.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

constexpr int64_t kMaxPower = 1 << 16;  // of integers: bits of the result

const char* symbol_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSubtract:
      return "-";
    case BinaryOp::kMultiply:
      return "*";
    case BinaryOp::kDivide:
      return "/";
    case BinaryOp::kFloorDivide:
      return "//";
    case BinaryOp::kModulo:
      return "%";
    case BinaryOp::kPower:
      return "** or pow()";
  }
  return "?";
}

[[noreturn]] void fail_operands(BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kAdd && (a.is_string() || a.type() == Type::kList || a.type() == Type::kTuple)) {
    fail_type("can only concatenate " + type_name(a) + " (not \"" + type_name(b) + "\") to " + type_name(a));
  }
  fail_type(std::string("unsupported operand type(s) for ") + symbol_of(op) + ": '" + type_name(a) +
            "' and '" + type_name(b) + "'");
}

[[noreturn]] void fail_zero_division(const char* message) {
  fail(JinjaErrorKind::kOther, std::string("ZeroDivisionError: ") + message);
}

BigInt to_big(const Value& v) {
  return v.is_small_int() ? BigInt(v.as_integer()) : v.as_big();
}

// ---- integers

Value divide_big(BinaryOp op, const BigInt& a, const BigInt& b) {
  BigInt quotient;
  BigInt remainder;
  BigInt::divide(a, b, quotient, remainder);
  return Value::big(op == BinaryOp::kModulo ? std::move(remainder) : std::move(quotient));
}

Value power_big(Runtime& runtime, const Value& base, int64_t exponent) {
  BigInt factor = to_big(base);
  const int64_t limbs = static_cast<int64_t>(factor.size()) * 32;
  if (limbs > 0 && exponent > kMaxPower / limbs &&
      !(factor.fits_int64() && std::llabs(factor.to_int64()) <= 1)) {
    fail(JinjaErrorKind::kLimit, "a power has more than " + std::to_string(kMaxPower) + " bits");
  }
  BigInt result(1);
  for (uint64_t rest = static_cast<uint64_t>(exponent); rest > 0; rest >>= 1) {
    runtime.step(1 + result.size() * factor.size());
    if ((rest & 1) != 0) result = result * factor;
    if (rest > 1) factor = factor * factor;
  }
  return Value::big(std::move(result));
}

Value big_arithmetic(Runtime& runtime, BinaryOp op, const BigInt& a, const BigInt& b) {
  runtime.step((a.size() + 1) * (b.size() + 1));
  if (static_cast<int64_t>(a.size() + b.size()) * 32 > 4 * kMaxPower) {
    fail(JinjaErrorKind::kLimit, "an integer grows too large");
  }
  switch (op) {
    case BinaryOp::kAdd:
      return Value::big(a + b);
    case BinaryOp::kSubtract:
      return Value::big(a - b);
    case BinaryOp::kMultiply:
      return Value::big(a * b);
    default:
      break;
  }
  if (b.is_zero())
    fail_zero_division(op == BinaryOp::kModulo ? "integer modulo by zero"
                                               : "integer division or modulo by zero");
  runtime.step(a.size() * a.size() * 32);
  return divide_big(op, a, b);
}

// The result where it fits 64 bits.
std::optional<int64_t> small_arithmetic(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case BinaryOp::kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case BinaryOp::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    default:
      break;
  }
  if (b == 0 || b == -1) return std::nullopt;  // -1 may overflow
  const int64_t rest = a % b;
  const bool round_down = rest != 0 && (rest < 0) != (b < 0);
  if (op == BinaryOp::kModulo) return round_down ? rest + b : rest;
  return a / b - (round_down ? 1 : 0);
}

Value integer_arithmetic(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_small_int() && b.is_small_int()) {
    if (const auto result = small_arithmetic(op, a.as_integer(), b.as_integer()))
      return Value::integer(*result);
  }
  return big_arithmetic(runtime, op, to_big(a), to_big(b));
}

// ---- floats

double float_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double float_floor_divide(double a, double b) {
  const double rest = float_modulo(a, b);
  const double quotient = (a - rest) / b;
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

Value float_arithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::real(a + b);
    case BinaryOp::kSubtract:
      return Value::real(a - b);
    case BinaryOp::kMultiply:
      return Value::real(a * b);
    default:
      break;
  }
  if (b == 0) fail_zero_division(op == BinaryOp::kDivide ? "float division by zero" : "float modulo by zero");
  if (op == BinaryOp::kDivide) return Value::real(a / b);
  return Value::real(op == BinaryOp::kModulo ? float_modulo(a, b) : float_floor_divide(a, b));
}

Value power(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_int() && b.is_small_int() && b.as_integer() >= 0) return power_big(runtime, a, b.as_integer());
  const double base = to_double(a);
  const double exponent = to_double(b);
  if (base == 0 && exponent < 0) fail_zero_division("0.0 cannot be raised to a negative power");
  if (base < 0 && exponent != std::floor(exponent)) {
    fail(JinjaErrorKind::kNotSupported, "complex numbers are not supported");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && !std::isinf(base) && !std::isinf(exponent)) {
    fail(JinjaErrorKind::kOther, "OverflowError: (34, 'Numerical result out of range')");
  }
  return Value::real(result);
}

Value number_arithmetic(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kPower) return power(runtime, a, b);
  if (op == BinaryOp::kDivide) {
    if (to_double(b) == 0)
      fail_zero_division(a.is_int() && b.is_int() ? "division by zero" : "float division by zero");
    return Value::real(to_double(a) / to_double(b));
  }
  if (a.is_int() && b.is_int()) return integer_arithmetic(runtime, op, a, b);
  return float_arithmetic(op, to_double(a), to_double(b));
}

// ---- sequences

Value add_strings(Runtime& runtime, Value left, const Value& right) {
  if (left.is_markup() != right.is_markup()) {
    const std::string a = left.is_markup() ? left.text() : escape_html(left.text());
    const std::string b = right.is_markup() ? right.text() : escape_html(right.text());
    runtime.grow(a.size() + b.size());
    return Value::markup(a + b);
  }
  const size_t size = left.text().size() + right.text().size();
  runtime.require_size(size);
  if (left.is_unique()) {  // a temporary: a + b + c grows one text
    runtime.grow(right.text().size());
    left.as<StringObject>().text += right.text();
    return left;
  }
  runtime.grow(size);
  std::string text;
  text.reserve(size);
  text += left.text();
  text += right.text();
  return left.is_markup() ? Value::markup(std::move(text)) : Value::string(std::move(text));
}

Value add_lists(Runtime& runtime, const Value& left, const Value& right) {
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  runtime.step(items.size());
  return left.type() == Type::kList ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value repeat_string(Runtime& runtime, const Value& text, int64_t count) {
  runtime.grow_times(count, text.text().size());
  std::string out;
  for (int64_t i = 0; i < count && !text.text().empty(); ++i) out += text.text();
  return text.is_markup() ? Value::markup(std::move(out)) : Value::string(std::move(out));
}

Value repeat_list(Runtime& runtime, const Value& list, int64_t count) {
  const std::vector<Value>& once = list.items();
  runtime.grow_times(count, once.size() * sizeof(Value));
  std::vector<Value> items;
  for (int64_t i = 0; i < count && !once.empty(); ++i) items.insert(items.end(), once.begin(), once.end());
  runtime.step(items.size());
  return list.type() == Type::kList ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

bool is_list_or_tuple(const Value& v) {
  return v.type() == Type::kList || v.type() == Type::kTuple;
}

// a * b where one is a sequence; nothing if neither is.
std::optional<Value> repeat(Runtime& runtime, const Value& a, const Value& b) {
  const bool left = (a.is_string() || is_list_or_tuple(a)) && b.is_int();
  const bool right = (b.is_string() || is_list_or_tuple(b)) && a.is_int();
  if (!left && !right) return std::nullopt;
  const Value& what = left ? a : b;
  const int64_t count = to_index(left ? b : a);
  return what.is_string() ? repeat_string(runtime, what, count) : repeat_list(runtime, what, count);
}

}  // namespace

Value binary(Runtime& runtime, BinaryOp op, Value left, const Value& right) {
  if (op == BinaryOp::kAdd && left.is_string() && right.is_string()) {
    return add_strings(runtime, std::move(left), right);
  }
  if (left.is_number() && right.is_number()) return number_arithmetic(runtime, op, left, right);
  require_defined(left);
  if (op == BinaryOp::kModulo && left.is_string())
    return Value::string(format_percent(runtime, left.text(), right));
  require_defined(right);
  if (op == BinaryOp::kAdd && left.type() == right.type() && is_list_or_tuple(left)) {
    return add_lists(runtime, left, right);
  }
  if (op == BinaryOp::kMultiply) {
    if (auto repeated = repeat(runtime, left, right)) return std::move(*repeated);
  }
  fail_operands(op, left, right);
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is_float()) return Value::real(-value.as_real());
  if (!value.is_int()) fail_type("bad operand type for unary -: '" + type_name(value) + "'");
  return Value::big(-to_big(value));
}

Value plus(const Value& value) {
  require_defined(value);
  if (value.is_bool()) return Value::integer(value.as_integer());
  if (!value.is_number()) fail_type("bad operand type for unary +: '" + type_name(value) + "'");
  return value;
}

bool contains(Runtime& runtime, const Value& haystack, const Value& needle) {
  if (haystack.is_string()) {
    if (!needle.is_string()) {
      fail_type("'in <string>' requires string as left operand, not " + type_name(needle));
    }
    runtime.grow(haystack.text().size());
    return haystack.text().find(needle.text()) != std::string::npos;
  }
  if (haystack.is_dict()) return haystack.as_dict().find(needle) != nullptr;
  const bool iterable = haystack.has_items() || haystack.is_undefined();
  if (!iterable) fail_type("argument of type '" + type_name(haystack) + "' is not iterable");
  runtime.step(extent(haystack).weight);
  const Sequence items(runtime, haystack);
  return std::any_of(items.begin(), items.end(), [&](const Value& item) { return equal(item, needle); });
}

bool compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right) {
  if (op == CompareOp::kIn || op == CompareOp::kNotIn) {
    return contains(runtime, right, left) == (op == CompareOp::kIn);
  }
  runtime.step(std::min(extent(left).weight, extent(right).weight));
  switch (op) {
    case CompareOp::kEqual:
      return equal(left, right);
    case CompareOp::kNotEqual:
      return !equal(left, right);
    case CompareOp::kLess:
      return less(left, right);
    case CompareOp::kGreater:
      return less(right, left);
    case CompareOp::kLessEqual:
      return less(left, right) || equal(left, right);
    case CompareOp::kGreaterEqual:
      return less(right, left) || equal(left, right);
    default:
      return false;
  }
}

namespace {

// Integers beyond 64 bits are as good as the largest that fit.
int64_t clamped_index(const Value& bound) {
  if (bound.type() != Type::kBigInt) return to_index(bound);
  return bound.as_big().is_negative() ? INT64_MIN : INT64_MAX;
}

}  // namespace

SliceRange slice_range(int64_t size, const Value& start, const Value& stop, const Value& step) {
  SliceRange range;
  range.step = step.is_none() ? 1 : clamped_index(step);
  if (range.step == 0) fail(JinjaErrorKind::kOther, "ValueError: slice step cannot be zero");
  const bool forward = range.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  const auto clamped = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    const int64_t index = clamped_index(bound);
    return std::clamp(index < 0 ? std::max(index, -size - 1) + size : index, low, high);
  };
  range.start = clamped(start, forward ? low : high);
  const int64_t end = clamped(stop, forward ? high : low);
  const int64_t distance = forward ? end - range.start : range.start - end;
  // A step beyond the size picks one item: the bound keeps the arithmetic from overflowing.
  range.step = std::clamp(range.step, -size - 1, size + 1);
  const int64_t stride = std::abs(range.step);
  range.count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  return range;
}

namespace {

Value slice_string(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                   const Value& step) {
  const std::string& text = value.text();
  runtime.grow(text.size());
  const auto wrap = [&](std::string part) {
    return value.is_markup() ? Value::markup(std::move(part)) : Value::string(std::move(part));
  };
  if (is_ascii(text) || !(step.is_none() || (step.is_small_int() && step.as_integer() == 1))) {
    const bool ascii = is_ascii(text);
    const std::vector<uint32_t> cps = ascii ? std::vector<uint32_t>() : decode(text);
    const SliceRange range =
        slice_range(static_cast<int64_t>(ascii ? text.size() : cps.size()), start, stop, step);
    if (ascii && range.step == 1) {
      return wrap(text.substr(static_cast<size_t>(range.start), static_cast<size_t>(range.count)));
    }
    std::string out;
    for (int64_t i = 0; i < range.count; ++i) {
      const auto at = static_cast<size_t>(range.start + i * range.step);
      append_code_point(out, ascii ? static_cast<unsigned char>(text[at]) : cps[at]);
    }
    return wrap(std::move(out));
  }
  const SliceRange range = slice_range(static_cast<int64_t>(count_code_points(text)), start, stop, step);
  const size_t begin = byte_offset(text, static_cast<size_t>(range.start));
  const size_t length = byte_offset(std::string_view(text).substr(begin), static_cast<size_t>(range.count));
  return wrap(text.substr(begin, length));
}

}  // namespace

bool can_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  const auto is_bound = [](const Value& v) { return v.is_none() || v.is_int(); };
  const bool sequence = object.is_string() || is_list_or_tuple(object) || object.type() == Type::kRange;
  return sequence && is_bound(start) && is_bound(stop) && is_bound(step);
}

Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
  require_defined(object);
  if (!can_slice(object, start, stop, step)) {
    fail_type("'" + type_name(object) +
              "' object cannot be sliced so: slice indices must be integers or none");
  }
  if (object.is_string()) return slice_string(runtime, object, start, stop, step);
  const std::vector<Value>& all = object.items();
  const SliceRange range = slice_range(static_cast<int64_t>(all.size()), start, stop, step);
  runtime.step(static_cast<uint64_t>(range.count));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i)
    items.push_back(all[static_cast<size_t>(range.start + i * range.step)]);
  if (object.type() == Type::kRange) {
    const auto& whole = object.as<RangeObject>();
    const int64_t first = RangeObject::at(whole.start, whole.step, range.start);
    const int64_t by = RangeObject::at(0, whole.step, range.step);
    const int64_t stop_at = RangeObject::at(first, by, range.count);
    return Value::object(Type::kRange, std::make_shared<RangeObject>(first, stop_at, by, std::move(items)));
  }
  return object.type() == Type::kTuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

double round_to(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits >= 0) {
    char text[1024];
    std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), value);
    return std::strtod(text, nullptr);
  }
  if (digits < -308) return std::copysign(0.0, value);
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / unit) * unit;
}

}  // namespace apus::data::jinja
