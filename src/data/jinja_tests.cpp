#include "data/jinja_tests.h"

#include <algorithm>

#include "data/jinja_filters.h"
#include "data/jinja_operators.h"
#include "data/jinja_runtime.h"
#include "data/jinja_split.h"
#include "data/jinja_text.h"

namespace apus::data::jinja {
namespace {

using ValueTest = bool (*)(const Value&);
// A test of the value alone.
template <ValueTest kTest>
bool plain(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("test", args, {});
  return kTest(input);
}

bool is_defined(const Value& v) {
  return !v.is_undefined();
}
bool is_undefined(const Value& v) {
  return v.is_undefined();
}
bool is_none(const Value& v) {
  return v.is_none();
}
bool is_boolean(const Value& v) {
  return v.is_bool();
}
bool is_true(const Value& v) {
  return v.is_bool() && v.as_bool();
}
bool is_false(const Value& v) {
  return v.is_bool() && !v.as_bool();
}
bool is_integer(const Value& v) {
  return v.is_int() && !v.is_bool();
}
bool is_float(const Value& v) {
  return v.is_float();
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_string(const Value& v) {
  return v.is_string();
}
bool is_mapping(const Value& v) {
  return v.is_dict();
}
bool is_escaped(const Value& v) {
  return v.is_markup();
}

// What has a length and can be indexed. Undefined has a length; its items are errors, and so is asking for
// them.
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_dict() || v.type() == Type::kList || v.type() == Type::kTuple ||
         v.type() == Type::kRange || v.is_undefined();
}

bool is_iterable(const Value& v) {
  return v.is_string() || v.is_dict() || v.has_items() || v.is_undefined();
}

bool is_lower(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("lower", args, {});
  return is_lower_case(to_text(runtime, input));
}

bool is_upper(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("upper", args, {});
  return is_upper_case(to_text(runtime, input));
}

bool divides(Runtime& runtime, const Value& value, const Value& divisor, int64_t rest) {
  return equal(binary(runtime, BinaryOp::kModulo, value, divisor), Value::integer(rest));
}

bool is_odd(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("odd", args, {});
  return divides(runtime, input, Value::integer(2), 1);
}

bool is_even(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("even", args, {});
  return divides(runtime, input, Value::integer(2), 0);
}

bool is_divisible(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("divisibleby", args, {"num"}, 1);
  return divides(runtime, input, bound.at(0), 0);
}

bool is_same_as(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("sameas", args, {"other"}, 1);
  return same(input, bound.at(0));
}

bool is_filter(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("filter", args, {});
  hash(input);  // names are looked up in a dict: what cannot be a key is an error
  return input.is_string() && (find_filter(input.text()) != nullptr || is_unsupported_filter(input.text()));
}

bool is_test(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("test", args, {});
  hash(input);
  return input.is_string() && find_test(input.text()) != nullptr;
}

template <CompareOp kOp>
bool compares(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("comparison", args, {"other"}, 1);
  return compare(runtime, kOp, input, bound.at(0));
}

struct TestEntry {
  std::string_view name;
  TestFunction function;
};

constexpr TestEntry kTests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"number", plain<is_number>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"sequence", plain<is_sequence>},
    {"iterable", plain<is_iterable>},
    {"callable", plain<is_callable>},
    {"escaped", plain<is_escaped>},
    {"lower", is_lower},
    {"upper", is_upper},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"sameas", is_same_as},
    {"filter", is_filter},
    {"test", is_test},
    {"in", compares<CompareOp::kIn>},
    {"==", compares<CompareOp::kEqual>},
    {"eq", compares<CompareOp::kEqual>},
    {"equalto", compares<CompareOp::kEqual>},
    {"!=", compares<CompareOp::kNotEqual>},
    {"ne", compares<CompareOp::kNotEqual>},
    {"<", compares<CompareOp::kLess>},
    {"lt", compares<CompareOp::kLess>},
    {"lessthan", compares<CompareOp::kLess>},
    {"<=", compares<CompareOp::kLessEqual>},
    {"le", compares<CompareOp::kLessEqual>},
    {">", compares<CompareOp::kGreater>},
    {"gt", compares<CompareOp::kGreater>},
    {"greaterthan", compares<CompareOp::kGreater>},
    {">=", compares<CompareOp::kGreaterEqual>},
    {"ge", compares<CompareOp::kGreaterEqual>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const auto& t) { return t.name == name; });
  return found == std::end(kTests) ? nullptr : found->function;
}

}  // namespace apus::data::jinja
