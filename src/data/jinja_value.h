#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apus/data/jinja.h"

/// The values of a template: Python's, as far as a template can tell.
namespace apus::data::jinja {

/// An error inside an expression; render adds the template's name and line.
class Failure final : public std::runtime_error {
 public:
  Failure(JinjaErrorKind kind, const std::string& reason) : std::runtime_error(reason), kind_(kind) {}
  JinjaErrorKind kind() const { return kind_; }

 private:
  JinjaErrorKind kind_;
};

[[noreturn]] void fail(JinjaErrorKind kind, const std::string& reason);
[[noreturn]] void fail_type(const std::string& reason);

enum class Type : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,     // 64 bits
  kBigInt,  // the integers beyond
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kView,      // what dict.keys(), values() and items() give
  kIterator,  // read once: what map, select, reverse, ... give
  kDict,
  kNamespace,
  kFunction,  // macros, methods, globals, loop
};

/// Base of everything a value shares between its copies.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

class BigInt;
struct StringObject;
struct UndefinedObject;
struct ListObject;
struct RangeObject;
struct ViewObject;
struct IteratorObject;
struct DictObject;
struct NamespaceObject;
struct FunctionObject;

/// Why a value is undefined, which decides the message when it is used.
enum class UndefinedReason : uint8_t { kHint, kName, kAttribute };

/// A value; cheap to copy. Everything shared is immutable, but for namespaces and iterators.
class Value {
 public:
  /// Undefined without a name.
  Value() : integer_(0) {}

  static Value none();
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value big(BigInt value);
  static Value real(double value);
  static Value string(std::string text);
  /// A text that is safe in HTML: what escape and safe give.
  static Value markup(std::string text);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value iterator(std::vector<Value> items, const char* type_name = "generator");
  static Value dict(std::shared_ptr<DictObject> object);
  static Value object(Type type, std::shared_ptr<Object> object);
  /// The value of a name that nothing defines.
  static Value undefined_name(const Value& name);
  /// A missing attribute or key of a value of type `owner`.
  static Value undefined_attribute(const Value& name, Type owner);
  static Value undefined_hint(std::string message, JinjaErrorKind kind = JinjaErrorKind::kUndefined);

  Type type() const { return type_; }
  bool is_undefined() const { return type_ == Type::kUndefined; }
  bool is_none() const { return type_ == Type::kNone; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_bool() const { return type_ == Type::kBool; }
  bool is_dict() const { return type_ == Type::kDict; }
  bool is_float() const { return type_ == Type::kFloat; }
  /// An int or a bool that fits 64 bits.
  bool is_small_int() const { return type_ == Type::kInt || type_ == Type::kBool; }
  bool is_int() const { return is_small_int() || type_ == Type::kBigInt; }
  bool is_number() const { return is_int() || is_float(); }
  /// list, tuple, range or dict view: items() works.
  bool has_items() const { return type_ >= Type::kList && type_ <= Type::kIterator; }
  bool is_markup() const;

  bool as_bool() const { return integer_ != 0; }
  int64_t as_integer() const { return integer_; }
  double as_real() const { return real_; }
  const std::string& text() const;
  const std::vector<Value>& items() const;
  const DictObject& as_dict() const;
  const BigInt& as_big() const;
  UndefinedReason undefined_reason() const { return reason_; }

  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& shared() const { return object_; }
  /// True if no other value shares this one's object, so that a temporary may be reused.
  bool is_unique() const { return object_.use_count() == 1; }

 private:
  Type type_ = Type::kUndefined;
  UndefinedReason reason_ = UndefinedReason::kName;
  Type owner_ = Type::kUndefined;
  union {
    int64_t integer_;
    double real_;
  };
  std::shared_ptr<Object> object_;

  friend std::string undefined_message(const Value& value);
};

struct StringObject final : Object {
  StringObject(std::string t, bool m) : text(std::move(t)), markup(m) {}
  std::string text;
  bool markup;
};

struct UndefinedObject final : Object {
  UndefinedObject(std::string m, JinjaErrorKind k) : message(std::move(m)), kind(k) {}
  std::string message;
  JinjaErrorKind kind;
};

/// How large a value is when shared parts are counted each time they occur. Bounded for every value, so
/// that neither the depth of a recursion over it nor its work can explode.
struct Extent {
  int depth = 0;        // nesting of lists and dicts
  uint64_t weight = 1;  // elements, plus one per 64 bytes of text
};

/// The deepest nesting and the largest weight of a value; more is a kLimit error.
inline constexpr int kMaxValueDepth = 400;
inline constexpr uint64_t kMaxValueWeight = 1u << 25;

Extent extent(const Value& value);
/// The extent of a container that holds `part` beside what `whole` counts already.
/// Throws kLimit where it is too much.
Extent enlarged(Extent whole, const Value& part);

/// list and tuple.
struct ListObject : Object {
  explicit ListObject(std::vector<Value> i);
  std::vector<Value> items;
  Extent size;
  bool is_group = false;  // a tuple of groupby: has .grouper and .list
};

struct RangeObject final : ListObject {
  RangeObject(int64_t start, int64_t stop, int64_t step, std::vector<Value> items);
  /// start + index * step; wraps where only a bound beyond the last item would overflow.
  static int64_t at(int64_t start, int64_t step, int64_t index) {
    return static_cast<int64_t>(static_cast<uint64_t>(start) +
                                static_cast<uint64_t>(index) * static_cast<uint64_t>(step));
  }
  int64_t start, stop, step;
};

struct ViewObject final : ListObject {
  ViewObject(const char* n, std::vector<Value> items) : ListObject(std::move(items)), type_name(n) {}
  const char* type_name;
};

struct IteratorObject final : ListObject {
  IteratorObject(const char* n, std::vector<Value> items) : ListObject(std::move(items)), type_name(n) {}
  const char* type_name;
  size_t next = 0;
};

/// A dict in order of insertion, indexed once it is large.
struct DictObject final : Object {
  std::vector<std::pair<Value, Value>> entries;
  Extent size = {.depth = 1};

  const Value* find(std::string_view key) const;
  /// Throws type if the key is not hashable.
  const Value* find(const Value& key) const;
  void set(Value key, Value value);

 private:
  std::unordered_multimap<size_t, size_t> index_;
  size_t position(const Value& key) const;
};

struct NamespaceObject final : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

/// Python's name of the type: "int", "NoneType", "dict", ...
std::string type_name(const Value& value);
/// What using an undefined value says.
std::string undefined_message(const Value& value);
/// Throws the error that an undefined value stands for.
[[noreturn]] void fail_undefined(const Value& value);
void require_defined(const Value& value);

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
/// Identity: the same object, or the same of None, True, False and small integers.
bool same(const Value& a, const Value& b);
/// Hash consistent with equal. Throws type for lists and dicts.
size_t hash(const Value& value);
/// a < b as Python orders. Throws type where it does not.
bool less(const Value& a, const Value& b);
/// Less, equal, greater as -1, 0, 1 for numbers; 2 where NaN takes part.
int compare_numbers(const Value& a, const Value& b);
double to_double(const Value& number);
bool is_callable(const Value& value);

}  // namespace apus::data::jinja
