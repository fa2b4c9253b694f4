#include "data/jinja_filters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "data/jinja_json.h"
#include "data/jinja_methods.h"
#include "data/jinja_number.h"
#include "data/jinja_operators.h"
#include "data/jinja_runtime.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

/// Filters on single values: numbers, defaults, attributes, JSON.
namespace apus::data::jinja {
namespace {

Value abs_filter(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("abs", args, {});
  if (!input.is_number()) fail_type("bad operand type for abs(): '" + type_name(input) + "'");
  if (input.is_float()) return Value::real(std::fabs(input.as_real()));
  return compare_numbers(input, Value::integer(0)) < 0 ? negate(input) : plus(input);
}

Value int_filter(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("int", args, {"default", "base"});
  require_defined(input);
  const int64_t base = bound.integer(1, 10);
  if (auto value = parse_integer(input, base)) return std::move(*value);
  return bound.value(0, Value::integer(0));
}

Value float_filter(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("float", args, {"default"});
  require_defined(input);
  if (const auto value = parse_float(input)) return Value::real(*value);
  return bound.value(0, Value::real(0));
}

Value round_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("round", args, {"precision", "method"});
  const std::string method = bound.has(1) ? bound.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail(JinjaErrorKind::kOther, "method must be common, ceil or floor");
  }
  if (!input.is_number()) fail_type("type " + type_name(input) + " doesn't define __round__ method");
  const bool to_integer = bound.has(0) && bound.at(0).is_none();
  const int64_t digits = to_integer ? 0 : bound.integer(0, 0);
  if (to_integer && input.is_float() && std::isfinite(input.as_real())) {
    return Value::big(BigInt::from_double(round_to(input.as_real(), 0)));
  }
  if (method == "common") {
    if (input.is_float()) return Value::real(round_to(input.as_real(), digits));
    return digits >= 0 ? plus(input) : round_integer(runtime, input, digits);
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = to_double(input) * unit;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value default_filter(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("default", args, {"default_value", "boolean"});
  const bool take = input.is_undefined() || (bound.flag(1, false) && !truth(input));
  return take ? bound.value(0, Value::string("")) : input;
}

Value attr_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("attr", args, {"name"}, 1);
  const std::string& name = bound.text(0);
  require_defined(input);
  const MethodSet methods = find_methods(name);
  if (input.is_dict() && methods.of_dict == nullptr)
    return Value::undefined_attribute(bound.at(0), Type::kDict);
  return get_attribute(runtime, input, bound.at(0), methods);
}

std::optional<std::string> json_indent(const Arguments& args) {
  if (!args.is_set(1)) return std::nullopt;
  if (args.at(1).is_string()) return args.text(1);
  const int64_t width = args.integer(1, 0);
  if (width > 10000) fail(JinjaErrorKind::kLimit, "an indent of more than 10000 spaces");
  return std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
}

Value tojson_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style = {.ensure_ascii = bound.flag(0, false), .sort_keys = bound.flag(3, false)};
  style.indent = json_indent(bound);
  if (style.indent) style.item_separator = ",";
  if (bound.is_set(2)) {
    const Sequence separators(runtime, bound.at(2));
    const bool two_texts = separators.size() == 2 && separators[0].is_string() && separators[1].is_string();
    if (!two_texts) fail(JinjaErrorKind::kOther, "ValueError: separators takes two texts");
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return Value::string(to_json(runtime, input, style));
}

Value string_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("string", args, {});
  return input.is_string() ? input : Value::string(to_text(runtime, input));
}

Value pprint_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("pprint", args, {"verbose"});
  std::string text = repr(runtime, input);
  if (count_code_points(text) > 80)
    fail(JinjaErrorKind::kNotSupported, "pprint of a value wider than 80 columns is not supported");
  return Value::string(std::move(text));
}

Value filesize_filter(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("filesizeformat", args, {"binary"});
  require_defined(input);
  const auto size = parse_float(input);
  if (!size && input.is_string()) {
    fail(JinjaErrorKind::kOther,
         "ValueError: could not convert string to float: " + repr_string(input.text()));
  }
  if (!size) fail_type("filesizeformat expects a number, got " + type_name(input));
  return Value::string(format_file_size(*size, bound.flag(0, false)));
}

constexpr FilterEntry kFilters[] = {
    {"abs", abs_filter},
    {"attr", attr_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"filesizeformat", filesize_filter},
    {"float", float_filter},
    {"int", int_filter},
    {"pprint", pprint_filter},
    {"round", round_filter},
    {"string", string_filter},
    {"tojson", tojson_filter},
};

}  // namespace

FilterFunction find_value_filter(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->function;
}

FilterFunction find_filter(std::string_view name) {
  if (FilterFunction found = find_value_filter(name)) return found;
  if (FilterFunction found = find_text_filter(name)) return found;
  return find_sequence_filter(name);
}

bool is_unsupported_filter(std::string_view name) {
  return name == "urlize" || name == "random";
}

}  // namespace apus::data::jinja
