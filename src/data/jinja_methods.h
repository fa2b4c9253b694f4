#pragma once

#include <string_view>

#include "data/jinja_objects.h"

namespace apus::data::jinja {

/// A method of a built-in type.
struct Method {
  std::string_view name;
  /// nullptr: there is such a method, and the sandbox forbids it.
  Value (*function)(Runtime& runtime, const Value& self, CallArgs& args);
};

/// The methods of one name, by the type that has them; looked up once, while parsing.
struct MethodSet {
  const Method* of_string = nullptr;
  const Method* of_dict = nullptr;
  const Method* of_list = nullptr;
  const Method* of_tuple = nullptr;
  const Method* of_number = nullptr;

  /// The method of a value's type; nullptr if it has none.
  const Method* find(const Value& value) const;
};

MethodSet find_methods(std::string_view name);

/// Tables by type.
const Method* find_string_method(std::string_view name);
const Method* find_container_method(Type type, std::string_view name);

/// object.name: the attribute, else the key, else undefined.
Value get_attribute(Runtime& runtime, const Value& object, const Value& name, const MethodSet& methods);
/// object[key]: the item, else the attribute, else undefined.
Value get_item(Runtime& runtime, const Value& object, const Value& key);

}  // namespace apus::data::jinja
