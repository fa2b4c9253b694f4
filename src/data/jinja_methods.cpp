#include "data/jinja_methods.h"

#include <algorithm>
#include <cmath>

#include "data/jinja_operators.h"
#include "data/jinja_runtime.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

// ---- dict

Value view(const char* type_name, std::vector<Value> items) {
  return Value::object(Type::kView, std::make_shared<ViewObject>(type_name, std::move(items)));
}

Value dict_items(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("items", args, {});
  std::vector<Value> pairs;
  runtime.step(self.as_dict().entries.size());
  for (const auto& [key, value] : self.as_dict().entries) pairs.push_back(Value::tuple({key, value}));
  return view("dict_items", std::move(pairs));
}

Value dict_keys(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("keys", args, {});
  return view("dict_keys", Sequence(runtime, self).copy());
}

Value dict_values(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("values", args, {});
  std::vector<Value> values;
  runtime.step(self.as_dict().entries.size());
  for (const auto& entry : self.as_dict().entries) values.push_back(entry.second);
  return view("dict_values", std::move(values));
}

Value dict_get(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("get", args, {"key", "default"}, 1);
  const Value* found = self.as_dict().find(bound.at(0));
  return found != nullptr ? *found : bound.value(1, Value::none());
}

Value dict_copy(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("copy", args, {});
  return self;  // values never change, so one is as good as two
}

// ---- list and tuple

Value sequence_count(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("count", args, {"value"}, 1);
  runtime.step(extent(self).weight);
  const auto& items = self.items();
  return Value::integer(
      std::count_if(items.begin(), items.end(), [&](const Value& v) { return equal(v, bound.at(0)); }));
}

Value sequence_index(Runtime& runtime, const Value& self, CallArgs& args) {
  Arguments bound("index", args, {"value"}, 1);
  runtime.step(extent(self).weight);
  const auto& items = self.items();
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const Value& v) { return equal(v, bound.at(0)); });
  if (found == items.end()) {
    fail(JinjaErrorKind::kOther,
         "ValueError: " + repr(runtime, bound.at(0)) + " is not in " + type_name(self));
  }
  return Value::integer(found - items.begin());
}

Value list_copy(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("copy", args, {});
  return self;
}

// ---- numbers

Value is_integer(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("is_integer", args, {});
  return Value::boolean(!self.is_float() || self.as_real() == std::floor(self.as_real()));
}

Value bit_length(Runtime&, const Value& self, CallArgs& args) {
  Arguments bound("bit_length", args, {});
  if (!self.is_int()) fail(JinjaErrorKind::kUndefined, "'float object' has no attribute 'bit_length'");
  const BigInt number = self.is_small_int() ? BigInt(self.as_integer()) : self.as_big();
  if (number.is_zero()) return Value::integer(0);
  const std::string bits = (number.is_negative() ? -number : number).to_string(2);
  return Value::integer(static_cast<int64_t>(bits.size()));
}

constexpr Method kDictMethods[] = {
    {"items", dict_items}, {"keys", dict_keys},     {"values", dict_values}, {"get", dict_get},
    {"copy", dict_copy},   {"update", nullptr},     {"pop", nullptr},        {"popitem", nullptr},
    {"clear", nullptr},    {"setdefault", nullptr},
};
constexpr Method kListMethods[] = {
    {"count", sequence_count}, {"index", sequence_index}, {"copy", list_copy},  {"append", nullptr},
    {"extend", nullptr},       {"insert", nullptr},       {"remove", nullptr},  {"pop", nullptr},
    {"clear", nullptr},        {"sort", nullptr},         {"reverse", nullptr},
};
constexpr Method kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr Method kNumberMethods[] = {{"is_integer", is_integer}, {"bit_length", bit_length}};

template <size_t N>
const Method* find_in(const Method (&table)[N], std::string_view name) {
  const auto* found = std::find_if(table, table + N, [&](const Method& m) { return m.name == name; });
  return found == table + N ? nullptr : found;
}

/// A method together with the value it belongs to.
struct BoundMethod final : FunctionObject {
  BoundMethod(const Value& s, const Method& m) : self(s), method(m) { size = enlarged(size, s); }
  Value call(Runtime& runtime, CallArgs& args) const override { return method.function(runtime, self, args); }
  const char* type_name() const override { return "builtin_function_or_method"; }
  std::string repr() const override {
    return "<built-in method " + std::string(method.name) + " of " + jinja::type_name(self) + " object>";
  }
  Value self;
  const Method& method;
};

bool is_dunder(std::string_view name) {
  return name.starts_with("__");
}

Value unsafe(const Value& object, std::string_view name) {
  return Value::undefined_hint(
      "access to attribute '" + std::string(name) + "' of '" + type_name(object) + "' object is unsafe.",
      JinjaErrorKind::kSecurity);
}

std::optional<Value> group_attribute(const Value& object, std::string_view name) {
  if (object.type() != Type::kTuple || !object.as<ListObject>().is_group) return std::nullopt;
  if (name == "grouper") return object.items()[0];
  if (name == "list") return object.items()[1];
  return std::nullopt;
}

// Attributes proper: methods, loop.index, namespace values; nothing where there is none.
std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name,
                                   const MethodSet& methods) {
  if (is_dunder(name)) return unsafe(object, name);
  if (const Method* method = methods.find(object)) {
    if (method->function == nullptr) return unsafe(object, name);
    return Value::object(Type::kFunction, std::make_shared<BoundMethod>(object, *method));
  }
  if (object.type() == Type::kNamespace) {
    const Value* found = object.as<NamespaceObject>().find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (object.type() == Type::kFunction) return object.as<FunctionObject>().attribute(runtime, name);
  if (object.is_number() && (name == "real" || name == "imag")) {
    return name == "real" ? plus(object) : object.is_float() ? Value::real(0) : Value::integer(0);
  }
  return group_attribute(object, name);
}

// The item of a dict or sequence; nothing where there is none.
std::optional<Value> own_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_dict()) {
    if (key.type() == Type::kList || key.is_dict()) return std::nullopt;
    const Value* found = object.as_dict().find(key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (!key.is_small_int()) return std::nullopt;
  const bool indexable =
      object.type() == Type::kList || object.type() == Type::kTuple || object.type() == Type::kRange;
  if (!object.is_string() && !indexable) return std::nullopt;
  runtime.step(object.is_string() ? object.text().size() / 64 : 0);
  const auto size =
      static_cast<int64_t>(object.is_string() ? count_code_points(object.text()) : object.items().size());
  const int64_t index = key.as_integer() < 0 ? key.as_integer() + size : key.as_integer();
  if (index < 0 || index >= size) return std::nullopt;
  if (!object.is_string()) return object.items()[static_cast<size_t>(index)];
  const std::string& text = object.text();
  const size_t begin = byte_offset(text, static_cast<size_t>(index));
  return Value::string(text.substr(begin, byte_offset(std::string_view(text).substr(begin), 1)));
}

}  // namespace

const Method* find_container_method(Type type, std::string_view name) {
  switch (type) {
    case Type::kDict:
      return find_in(kDictMethods, name);
    case Type::kList:
      return find_in(kListMethods, name);
    case Type::kTuple:
      return find_in(kTupleMethods, name);
    case Type::kInt:
      return find_in(kNumberMethods, name);
    default:
      return nullptr;
  }
}

const Method* MethodSet::find(const Value& value) const {
  switch (value.type()) {
    case Type::kString:
      return of_string;
    case Type::kDict:
      return of_dict;
    case Type::kList:
      return of_list;
    case Type::kTuple:
    case Type::kRange:
      return of_tuple;
    case Type::kBool:
    case Type::kInt:
    case Type::kBigInt:
    case Type::kFloat:
      return of_number;
    default:
      return nullptr;
  }
}

MethodSet find_methods(std::string_view name) {
  return {.of_string = find_string_method(name),
          .of_dict = find_container_method(Type::kDict, name),
          .of_list = find_container_method(Type::kList, name),
          .of_tuple = find_container_method(Type::kTuple, name),
          .of_number = find_container_method(Type::kInt, name)};
}

Value get_attribute(Runtime& runtime, const Value& object, const Value& name, const MethodSet& methods) {
  require_defined(object);
  if (object.is_dict() && methods.of_dict == nullptr && !is_dunder(name.text())) {
    const Value* found = object.as_dict().find(name.text());  // the usual case, without detours
    return found != nullptr ? *found : Value::undefined_attribute(name, Type::kDict);
  }
  if (auto attribute = own_attribute(runtime, object, name.text(), methods)) return std::move(*attribute);
  if (auto item = own_item(runtime, object, name)) return std::move(*item);
  return Value::undefined_attribute(name, object.type());
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  require_defined(object);
  if (auto item = own_item(runtime, object, key)) return std::move(*item);
  if (key.is_string()) {
    if (auto attribute = own_attribute(runtime, object, key.text(), find_methods(key.text()))) {
      return std::move(*attribute);
    }
  }
  return Value::undefined_attribute(key, object.type());
}

}  // namespace apus::data::jinja
