#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/jinja_bigint.h"
#include "data/jinja_value.h"

namespace apus::data::jinja {

class Runtime;

struct BigIntObject final : Object {
  explicit BigIntObject(BigInt v) : value(std::move(v)) {}
  BigInt value;
};

/// The arguments of a call: of a macro, a method, a filter or a test.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// Removes and returns the named argument, if it is there.
  std::optional<Value> take(std::string_view name);
};

/// Anything that a template can call.
struct FunctionObject : Object {
  Extent size;  // of the values that it holds
  virtual Value call(Runtime& runtime, CallArgs& args) const = 0;
  virtual const char* type_name() const { return "function"; }
  virtual std::string repr() const = 0;
  /// An attribute, e.g. loop.index; nothing where there is none of that name.
  virtual std::optional<Value> attribute(Runtime& runtime, std::string_view name) const;
};

/// Binds arguments to parameter names as a Python function does, and converts them.
/// Throws: type for too many, unknown, repeated or missing arguments.
class Arguments {
 public:
  /// The first `required` parameters must be given.
  Arguments(std::string_view function, CallArgs& args, std::initializer_list<std::string_view> parameters,
            size_t required = 0);

  bool has(size_t index) const { return values_[index].has_value(); }
  /// Given and not none.
  bool is_set(size_t index) const { return has(index) && !at(index).is_none(); }
  const Value& at(size_t index) const { return *values_[index]; }
  Value value(size_t index, const Value& otherwise) const { return has(index) ? at(index) : otherwise; }
  bool flag(size_t index, bool otherwise) const { return has(index) ? truth(at(index)) : otherwise; }
  int64_t integer(size_t index, int64_t otherwise) const;
  /// The text of a str argument; throws type for any other value.
  const std::string& text(size_t index) const;

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
};

/// A 64-bit index or count; throws type for what is no integer.
int64_t to_index(const Value& value);

}  // namespace apus::data::jinja
