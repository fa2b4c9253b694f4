#pragma once

#include <cstdint>
#include <string_view>

#include "data/jinja_objects.h"

namespace apus::data::jinja {

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

/// a op b as Python computes it. Throws type, undefined or other.
/// May reuse the object of `left` where nothing else refers to it.
Value binary(Runtime& runtime, BinaryOp op, Value left, const Value& right);
bool compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right);
/// needle in haystack.
bool contains(Runtime& runtime, const Value& haystack, const Value& needle);
Value negate(const Value& value);
Value plus(const Value& value);

/// Whether slice takes these: a sequence, and bounds that are integers or none.
bool can_slice(const Value& object, const Value& start, const Value& stop, const Value& step);
/// object[start:stop:step]; a bound of none is absent. Throws type where can_slice is false.
Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);

/// Items start, start + step, ... of a sequence of `size`, as Python's slice picks them.
struct SliceRange {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};
SliceRange slice_range(int64_t size, const Value& start, const Value& stop, const Value& step);

/// Python's round: half to even on the exact value.
double round_to(double value, int64_t digits);

}  // namespace apus::data::jinja
