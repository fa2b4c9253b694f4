#include "data/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "data/jinja_bigint.h"
#include "data/jinja_objects.h"

namespace apus::data::jinja {

void fail(JinjaErrorKind kind, const std::string& reason) {
  throw Failure(kind, reason);
}
void fail_type(const std::string& reason) {
  throw Failure(JinjaErrorKind::kType, reason);
}

Value Value::none() {
  Value v;
  v.type_ = Type::kNone;
  return v;
}

Value Value::boolean(bool value) {
  Value v;
  v.type_ = Type::kBool;
  v.integer_ = value ? 1 : 0;
  return v;
}

Value Value::integer(int64_t value) {
  Value v;
  v.type_ = Type::kInt;
  v.integer_ = value;
  return v;
}

Value Value::big(BigInt value) {
  if (value.fits_int64()) return integer(value.to_int64());
  return object(Type::kBigInt, std::make_shared<BigIntObject>(std::move(value)));
}

Value Value::real(double value) {
  Value v;
  v.type_ = Type::kFloat;
  v.real_ = value;
  return v;
}

Value Value::string(std::string text) {
  return object(Type::kString, std::make_shared<StringObject>(std::move(text), false));
}

Value Value::markup(std::string text) {
  return object(Type::kString, std::make_shared<StringObject>(std::move(text), true));
}

Value Value::list(std::vector<Value> items) {
  return object(Type::kList, std::make_shared<ListObject>(std::move(items)));
}

Value Value::tuple(std::vector<Value> items) {
  return object(Type::kTuple, std::make_shared<ListObject>(std::move(items)));
}

Value Value::iterator(std::vector<Value> items, const char* type_name) {
  return object(Type::kIterator, std::make_shared<IteratorObject>(type_name, std::move(items)));
}

Value Value::dict(std::shared_ptr<DictObject> object) {
  return Value::object(Type::kDict, std::move(object));
}

Value Value::object(Type type, std::shared_ptr<Object> object) {
  Value v;
  v.type_ = type;
  v.object_ = std::move(object);
  return v;
}

Value Value::undefined_name(const Value& name) {
  Value v;
  v.object_ = name.object_;
  return v;
}

Value Value::undefined_attribute(const Value& name, Type owner) {
  if (!name.is_string()) {
    Value owner_name;
    owner_name.type_ = owner;
    return undefined_hint(type_name(owner_name) + " object has no such element");
  }
  Value v;
  v.reason_ = UndefinedReason::kAttribute;
  v.owner_ = owner;
  v.object_ = name.object_;
  return v;
}

Value Value::undefined_hint(std::string message, JinjaErrorKind kind) {
  Value v;
  v.reason_ = UndefinedReason::kHint;
  v.object_ = std::make_shared<UndefinedObject>(std::move(message), kind);
  return v;
}

bool Value::is_markup() const {
  return is_string() && as<StringObject>().markup;
}
const std::string& Value::text() const {
  return as<StringObject>().text;
}
const std::vector<Value>& Value::items() const {
  return as<ListObject>().items;
}
const DictObject& Value::as_dict() const {
  return as<DictObject>();
}
const BigInt& Value::as_big() const {
  return as<BigIntObject>().value;
}

Extent enlarged(Extent whole, const Value& part) {
  const Extent inner = extent(part);
  whole.depth = std::max(whole.depth, inner.depth + 1);
  whole.weight += inner.weight;
  if (whole.depth > kMaxValueDepth) {
    fail(JinjaErrorKind::kLimit, "lists and dicts are nested deeper than " + std::to_string(kMaxValueDepth));
  }
  if (whole.weight > kMaxValueWeight) {
    fail(JinjaErrorKind::kLimit,
         "a list or dict has more than " + std::to_string(kMaxValueWeight) + " elements");
  }
  return whole;
}

Extent extent(const Value& value) {
  if (value.has_items()) return value.as<ListObject>().size;
  if (value.is_dict()) return value.as_dict().size;
  if (value.type() == Type::kFunction) return value.as<FunctionObject>().size;
  return {.depth = 0, .weight = value.is_string() ? 1 + value.text().size() / 64 : 1};
}

ListObject::ListObject(std::vector<Value> i) : items(std::move(i)), size{.depth = 1} {
  for (const Value& item : items) size = enlarged(size, item);
}

RangeObject::RangeObject(int64_t first, int64_t last, int64_t by, std::vector<Value> values)
    : ListObject(std::move(values)), start(first), stop(last), step(by) {}

namespace {

constexpr size_t kIndexFrom = 16;  // below, comparing is faster than hashing
constexpr size_t kNoPosition = static_cast<size_t>(-1);

bool is_key(const Value& candidate, std::string_view key) {
  return candidate.is_string() && candidate.text() == key;
}

}  // namespace

const Value* DictObject::find(std::string_view key) const {
  if (entries.size() < kIndexFrom) {
    for (const auto& [k, v] : entries) {
      if (is_key(k, key)) return &v;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    if (is_key(entries[it->second].first, key)) return &entries[it->second].second;
  }
  return nullptr;
}

size_t DictObject::position(const Value& key) const {
  if (entries.size() < kIndexFrom) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equal(entries[i].first, key)) return i;
    }
    return kNoPosition;
  }
  const auto [begin, end] = index_.equal_range(hash(key));
  for (auto it = begin; it != end; ++it) {
    if (equal(entries[it->second].first, key)) return it->second;
  }
  return kNoPosition;
}

const Value* DictObject::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.text()));
  hash(key);  // refuses what cannot be a key
  const size_t found = position(key);
  return found == kNoPosition ? nullptr : &entries[found].second;
}

void DictObject::set(Value key, Value value) {
  const size_t code = hash(key);
  size = enlarged(enlarged(size, key), value);
  const size_t found = position(key);
  if (found != kNoPosition) {
    entries[found].second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == kIndexFrom) {
    for (size_t i = 0; i < entries.size(); ++i) index_.emplace(hash(entries[i].first), i);
  } else if (entries.size() > kIndexFrom) {
    index_.emplace(code, entries.size() - 1);
  }
}

const Value* NamespaceObject::find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void NamespaceObject::set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

std::string type_name(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
    case Type::kBigInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return value.shared() && value.is_markup() ? "Markup" : "str";
    case Type::kList:
      return "list";
    case Type::kTuple:
      return "tuple";
    case Type::kRange:
      return "range";
    case Type::kView:
      return value.shared() ? value.as<ViewObject>().type_name : "dict_items";
    case Type::kIterator:
      return value.shared() ? value.as<IteratorObject>().type_name : "generator";
    case Type::kDict:
      return "dict";
    case Type::kNamespace:
      return "Namespace";
    case Type::kFunction:
      return value.shared() ? value.as<FunctionObject>().type_name() : "function";
  }
  return "object";
}

std::string undefined_message(const Value& value) {
  if (value.undefined_reason() == UndefinedReason::kHint) return value.as<UndefinedObject>().message;
  const std::string name = value.shared() ? value.text() : "";
  if (value.undefined_reason() == UndefinedReason::kName) return "'" + name + "' is undefined";
  Value owner;
  owner.type_ = value.owner_;
  const std::string type = owner.is_none() ? "None" : type_name(owner) + " object";
  return "'" + type + "' has no attribute '" + name + "'";
}

void fail_undefined(const Value& value) {
  const bool hint = value.undefined_reason() == UndefinedReason::kHint;
  fail(hint ? value.as<UndefinedObject>().kind : JinjaErrorKind::kUndefined, undefined_message(value));
}

void require_defined(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
}

bool truth(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return value.as_integer() != 0;
    case Type::kFloat:
      return value.as_real() != 0;
    case Type::kString:
      return !value.text().empty();
    case Type::kList:
    case Type::kTuple:
    case Type::kRange:
    case Type::kView:
      return !value.items().empty();
    case Type::kDict:
      return !value.as_dict().entries.empty();
    default:
      return true;
  }
}

double to_double(const Value& number) {
  if (number.is_float()) return number.as_real();
  return number.is_small_int() ? static_cast<double>(number.as_integer()) : number.as_big().to_double();
}

namespace {

BigInt to_big(const Value& number) {
  return number.is_small_int() ? BigInt(number.as_integer()) : number.as_big();
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
}

bool equal_dicts(const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

size_t hash_number(const Value& value) {
  if (value.is_small_int()) return std::hash<int64_t>()(value.as_integer());
  if (value.type() == Type::kBigInt) return std::hash<double>()(value.as_big().to_double());
  const double d = value.as_real();
  const bool integral = d == std::floor(d) && std::fabs(d) < 9e18;
  return integral ? std::hash<int64_t>()(static_cast<int64_t>(d)) : std::hash<double>()(d);
}

}  // namespace

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_small_int() && b.is_small_int()) {
    return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
  }
  if (a.is_int() && b.is_int()) return BigInt::compare(to_big(a), to_big(b));
  const double x = to_double(a);
  const double y = to_double(b);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
      return a.text() == b.text();
    case Type::kList:
    case Type::kTuple:
    case Type::kRange:
      return a.shared() == b.shared() || equal_items(a.items(), b.items());
    case Type::kDict:
      return a.shared() == b.shared() || equal_dicts(a.as_dict(), b.as_dict());
    default:
      return a.shared() == b.shared();
  }
}

bool same(const Value& a, const Value& b) {
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kNone:
      return true;
    case Type::kBool:
    case Type::kInt:
      return a.as_integer() == b.as_integer();
    case Type::kFloat:
      return a.as_real() == b.as_real();
    case Type::kString:
      return a.text() == b.text();
    case Type::kUndefined:
      return a.shared() != nullptr && a.shared() == b.shared();
    default:
      return a.shared() == b.shared();
  }
}

size_t hash(const Value& value) {
  if (value.is_number()) return hash_number(value);
  switch (value.type()) {
    case Type::kString:
      return std::hash<std::string_view>()(value.text());
    case Type::kNone:
      return 0x9E37;
    case Type::kUndefined:
      return 0x79B9;
    case Type::kTuple: {
      size_t code = value.items().size();
      for (const Value& item : value.items()) code = code * 1000003 ^ hash(item);
      return code;
    }
    case Type::kList:
    case Type::kDict:
      fail_type("unhashable type: '" + type_name(value) + "'");
    default:
      return std::hash<const void*>()(value.shared().get());
  }
}

bool less(const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.is_string() && b.is_string()) return a.text() < b.text();
  const bool lists = a.type() == b.type() && (a.type() == Type::kList || a.type() == Type::kTuple);
  if (!lists) {
    fail_type("'<' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) + "'");
  }
  const auto& x = a.items();
  const auto& y = b.items();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!equal(x[i], y[i])) return less(x[i], y[i]);
  }
  return x.size() < y.size();
}

bool is_callable(const Value& value) {
  return value.type() == Type::kFunction || value.is_undefined();
}

}  // namespace apus::data::jinja
