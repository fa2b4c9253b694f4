#include "data/jinja_objects.h"

#include <algorithm>

namespace apus::data::jinja {

std::optional<Value> CallArgs::take(std::string_view name) {
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& n) { return n.first == name; });
  if (found == named.end()) return std::nullopt;
  Value value = std::move(found->second);
  named.erase(found);
  return value;
}

std::optional<Value> FunctionObject::attribute(Runtime&, std::string_view) const {
  return std::nullopt;
}

Arguments::Arguments(std::string_view function, CallArgs& args,
                     std::initializer_list<std::string_view> parameters, size_t required)
    : function_(function), values_(parameters.size()) {
  if (args.positional.size() > parameters.size()) {
    fail_type(function_ + "() takes at most " + std::to_string(parameters.size()) + " arguments, got " +
              std::to_string(args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = std::move(args.positional[i]);
  for (auto& [name, value] : args.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) {
      fail_type(function_ + "() got an unexpected keyword argument '" + name + "'");
    }
    auto& slot = values_[static_cast<size_t>(found - parameters.begin())];
    if (slot.has_value()) fail_type(function_ + "() got multiple values for argument '" + name + "'");
    slot = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i].has_value()) continue;
    fail_type(function_ + "() is missing the argument '" + std::string(parameters.begin()[i]) + "'");
  }
}

int64_t Arguments::integer(size_t index, int64_t otherwise) const {
  return has(index) ? to_index(at(index)) : otherwise;
}

const std::string& Arguments::text(size_t index) const {
  const Value& value = at(index);
  if (!value.is_string()) {
    fail_type(function_ + "() expected a str, got " + type_name(value));
  }
  return value.text();
}

int64_t to_index(const Value& value) {
  if (value.type() == Type::kBigInt) {
    fail(JinjaErrorKind::kOther, "OverflowError: Python int too large to convert to C ssize_t");
  }
  if (!value.is_small_int()) {
    fail_type("'" + type_name(value) + "' object cannot be interpreted as an integer");
  }
  return value.as_integer();
}

}  // namespace apus::data::jinja
