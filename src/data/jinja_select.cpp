#include "data/jinja_select.h"

#include <algorithm>
#include <charconv>

#include "data/jinja_methods.h"
#include "data/jinja_runtime.h"
#include "data/jinja_split.h"
#include "data/jinja_tests.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

Value path_part(std::string_view part) {
  int64_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  const bool number = error == std::errc() && end == part.data() + part.size() && !part.starts_with('-');
  return number ? Value::integer(index) : Value::string(std::string(part));
}

}  // namespace

AttributeGetter::AttributeGetter(const Value& attribute, Parts parts, Value otherwise)
    : otherwise_(std::move(otherwise)) {
  several_ = parts == Parts::kSeveral;
  if (attribute.is_none()) {
    paths_.push_back({});
  } else if (!attribute.is_string()) {
    paths_.push_back({attribute});
  } else if (parts == Parts::kOne) {
    add_path(attribute.text());
  } else {
    for (const std::string_view path : split(attribute.text(), ",", -1)) add_path(path);
  }
}

void AttributeGetter::add_path(std::string_view path) {
  std::vector<Value> parts;
  for (const std::string_view part : split(path, ".", -1)) parts.push_back(path_part(part));
  paths_.push_back(std::move(parts));
}

Value AttributeGetter::follow(Runtime& runtime, const Value& item, const std::vector<Value>& path) const {
  Value value = item;
  for (const Value& part : path) {
    value = get_item(runtime, value, part);
    if (value.is_undefined() && !otherwise_.is_none()) value = otherwise_;
  }
  return value;
}

Value AttributeGetter::operator()(Runtime& runtime, const Value& item) const {
  runtime.step();
  if (!several_) return follow(runtime, item, paths_.front());
  std::vector<Value> values;
  for (const auto& path : paths_) values.push_back(follow(runtime, item, path));
  return Value::list(std::move(values));
}

Value sort_key(const Value& value, bool case_sensitive) {
  if (case_sensitive) return value;
  if (value.is_string()) return Value::string(to_lower(value.text()));
  if (value.type() != Type::kList) return value;
  std::vector<Value> parts;
  for (const Value& part : value.items()) parts.push_back(part.is_string() ? sort_key(part, false) : part);
  return Value::list(std::move(parts));
}

void sort_by(Runtime& runtime, std::vector<Value>& items, const AttributeGetter& get,
             const SortOrder& order) {
  std::vector<std::pair<Value, Value>> keyed;
  uint64_t weight = 0;
  for (const Value& item : items) {
    keyed.emplace_back(sort_key(get(runtime, item), order.case_sensitive), item);
    weight += extent(keyed.back().first).weight;
  }
  runtime.step(weight * 16);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return order.reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
}

Value select(Runtime& runtime, const Value& input, CallArgs& args, Selection selection) {
  if (!truth(input)) return Value::iterator({});
  const size_t used = selection.by_attribute ? 1 : 0;
  if (args.positional.size() < used) fail(JinjaErrorKind::kOther, "Missing parameter for attribute name");
  const AttributeGetter get(used == 1 ? args.positional[0] : Value::none());
  TestFunction test = nullptr;
  if (args.positional.size() > used) {
    const Value& name = args.positional[used];
    test = name.is_string() ? find_test(name.text()) : nullptr;
    if (test == nullptr) {
      fail(JinjaErrorKind::kOther,
           "No test named '" + (name.is_string() ? name.text() : type_name(name)) + "'.");
    }
    args.positional.erase(args.positional.begin(),
                          args.positional.begin() + static_cast<ptrdiff_t>(used) + 1);
  }
  std::vector<Value> kept;
  for (const Value& item : Sequence(runtime, input)) {
    const Value subject = get(runtime, item);
    CallArgs own = args;
    const bool holds = test == nullptr ? truth(subject) : test(runtime, subject, own);
    if (holds == selection.keep) kept.push_back(item);
  }
  return Value::iterator(std::move(kept));
}

}  // namespace apus::data::jinja
