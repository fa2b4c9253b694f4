#include <algorithm>

#include "data/jinja_filters.h"
#include "data/jinja_methods.h"
#include "data/jinja_operators.h"
#include "data/jinja_runtime.h"
#include "data/jinja_select.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

/// Filters on lists, dicts and whatever else can be iterated.
namespace apus::data::jinja {
namespace {

Value length_filter(Runtime&, const Value& input, CallArgs& args) {
  Arguments bound("length", args, {});
  if (input.is_undefined()) return Value::integer(0);
  if (input.is_string()) return Value::integer(static_cast<int64_t>(count_code_points(input.text())));
  if (input.is_dict()) return Value::integer(static_cast<int64_t>(input.as_dict().entries.size()));
  if (!input.has_items() || input.type() == Type::kIterator) {
    fail_type("object of type '" + type_name(input) + "' has no len()");
  }
  return Value::integer(static_cast<int64_t>(input.items().size()));
}

Value list_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("list", args, {});
  return input.type() == Type::kList ? input : Value::list(Sequence(runtime, input).copy());
}

Value first_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("first", args, {});
  if (input.type() == Type::kIterator) {  // takes one item only
    auto& iterator = input.as<IteratorObject>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return Value::undefined_hint("No first item, sequence was empty.");
  }
  const Sequence items(runtime, input);
  return items.size() > 0 ? items[0] : Value::undefined_hint("No first item, sequence was empty.");
}

Value last_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("last", args, {});
  if (input.type() == Type::kIterator) fail_type("'" + type_name(input) + "' object is not reversible");
  const Sequence items(runtime, input);
  return items.size() > 0 ? items[items.size() - 1]
                          : Value::undefined_hint("No last item, sequence was empty.");
}

Value reverse_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("reverse", args, {});
  if (input.is_string()) return slice(runtime, input, Value::none(), Value::none(), Value::integer(-1));
  const bool iterable = input.is_dict() || input.has_items() || input.is_undefined();
  if (!iterable) fail(JinjaErrorKind::kOther, "argument must be iterable");
  std::vector<Value> items = Sequence(runtime, input).copy();
  std::reverse(items.begin(), items.end());
  return Value::iterator(std::move(items), "list_reverseiterator");
}

Value items_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("items", args, {});
  if (input.is_undefined()) return Value::iterator({});
  if (!input.is_dict()) fail_type("Can only get item pairs from a mapping.");
  CallArgs none;
  return Value::iterator(find_container_method(Type::kDict, "items")->function(runtime, input, none).items());
}

Value join_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("join", args, {"d", "attribute"});
  const std::string separator = bound.has(0) ? to_text(runtime, bound.at(0)) : "";
  const AttributeGetter get(bound.value(1, Value::none()));
  std::string out;
  bool first = true;
  for (const Value& item : Sequence(runtime, input)) {
    const std::string text = to_text(runtime, get(runtime, item));
    runtime.require_size(out.size() + separator.size() + text.size());
    if (!first) out += separator;
    out += text;
    first = false;
  }
  runtime.grow(out.size());
  return Value::string(std::move(out));
}

Value sort_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  const AttributeGetter get(bound.value(2, Value::none()), AttributeGetter::Parts::kSeveral);
  std::vector<Value> items = Sequence(runtime, input).copy();
  sort_by(runtime, items, get, {.case_sensitive = bound.flag(1, false), .reverse = bound.integer(0, 0) != 0});
  return Value::list(std::move(items));
}

Value dictsort_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  require_defined(input);
  if (!input.is_dict()) {
    fail(JinjaErrorKind::kOther,
         "AttributeError: '" + type_name(input) + "' object has no attribute 'items'");
  }
  const std::string by = bound.has(1) ? bound.text(1) : "key";
  if (by != "key" && by != "value") {
    fail(JinjaErrorKind::kOther, "You can only sort by either \"key\" or \"value\"");
  }
  CallArgs none;
  std::vector<Value> pairs =
      find_container_method(Type::kDict, "items")->function(runtime, input, none).items();
  const AttributeGetter get(Value::integer(by == "key" ? 0 : 1));
  sort_by(runtime, pairs, get, {.case_sensitive = bound.flag(0, false), .reverse = bound.integer(2, 0) != 0});
  return Value::list(std::move(pairs));
}

Value unique_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("unique", args, {"case_sensitive", "attribute"});
  const AttributeGetter get(bound.value(1, Value::none()));
  DictObject seen;
  std::vector<Value> kept;
  for (const Value& item : Sequence(runtime, input)) {
    const Value key = sort_key(get(runtime, item), bound.flag(0, false));
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    kept.push_back(item);
  }
  return Value::iterator(std::move(kept));
}

Value extreme(Runtime& runtime, const Value& input, CallArgs& args, bool largest) {
  Arguments bound(largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const AttributeGetter get(bound.value(1, Value::none()));
  const Sequence items(runtime, input);
  if (items.size() == 0) return Value::undefined_hint("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = sort_key(get(runtime, items[0]), bound.flag(0, false));
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = sort_key(get(runtime, items[i]), bound.flag(0, false));
    if (!(largest ? less(best_key, key) : less(key, best_key))) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Value min_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  return extreme(runtime, input, args, false);
}
Value max_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  return extreme(runtime, input, args, true);
}

Value sum_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("sum", args, {"attribute", "start"});
  const AttributeGetter get(bound.value(0, Value::none()));
  Value total = bound.value(1, Value::integer(0));
  if (total.is_string()) fail_type("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : Sequence(runtime, input)) {
    total = binary(runtime, BinaryOp::kAdd, std::move(total), get(runtime, item));
  }
  return total;
}

Value batch_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("batch", args, {"linecount", "fill_with"}, 1);
  const int64_t size = bound.integer(0, 1);
  const Sequence items(runtime, input);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : items) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(Value::list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    runtime.grow_times(bound.is_set(1) ? size : 0, sizeof(Value));
    while (bound.is_set(1) && static_cast<int64_t>(row.size()) < size) row.push_back(bound.at(1));
    rows.push_back(Value::list(std::move(row)));
  }
  return Value::iterator(std::move(rows));
}

Value slice_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("slice", args, {"slices", "fill_with"}, 1);
  const int64_t count = bound.integer(0, 1);
  if (count == 0) fail(JinjaErrorKind::kOther, "ZeroDivisionError: integer division or modulo by zero");
  const Sequence items(runtime, input);
  const auto size = static_cast<int64_t>(items.size());
  runtime.grow_times(count, sizeof(Value));
  std::vector<Value> columns;
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool has_extra = i < size % count;
    const int64_t end = next + size / count + (has_extra ? 1 : 0);
    std::vector<Value> column;
    while (next < end) column.push_back(items[static_cast<size_t>(next++)]);
    if (bound.is_set(1) && !has_extra) column.push_back(bound.at(1));
    columns.push_back(Value::list(std::move(column)));
  }
  return Value::iterator(std::move(columns));
}

Value groupby_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = bound.flag(2, false);
  const AttributeGetter get(bound.at(0), AttributeGetter::Parts::kOne, bound.value(1, Value::none()));
  std::vector<Value> items = Sequence(runtime, input).copy();
  sort_by(runtime, items, get, {.case_sensitive = case_sensitive});
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    const Value key = sort_key(get(runtime, items[begin]), case_sensitive);
    std::vector<Value> members;
    size_t end = begin + 1;  // the first belongs to its group even where it does not equal itself
    members.push_back(items[begin]);
    while (end < items.size() && equal(sort_key(get(runtime, items[end]), case_sensitive), key)) {
      members.push_back(items[end++]);
    }
    Value group = Value::tuple({get(runtime, items[begin]), Value::list(std::move(members))});
    group.as<ListObject>().is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return Value::list(std::move(groups));
}

Value map_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  if (!truth(input)) return Value::iterator({});
  std::vector<Value> results;
  const bool by_attribute = std::any_of(args.named.begin(), args.named.end(),
                                        [](const auto& named) { return named.first == "attribute"; });
  if (args.positional.empty() && by_attribute) {
    Arguments bound("map", args, {"attribute", "default"}, 1);
    const AttributeGetter get(bound.at(0), AttributeGetter::Parts::kOne, bound.value(1, Value::none()));
    for (const Value& item : Sequence(runtime, input)) results.push_back(get(runtime, item));
    return Value::iterator(std::move(results));
  }
  if (args.positional.empty()) fail(JinjaErrorKind::kOther, "map requires a filter argument");
  const std::string name = to_text(runtime, args.positional[0]);
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) fail(JinjaErrorKind::kOther, "No filter named '" + name + "'.");
  args.positional.erase(args.positional.begin());
  const DepthGuard depth(runtime);  // the filter may be map again
  for (const Value& item : Sequence(runtime, input)) {
    CallArgs own = args;
    results.push_back(filter(runtime, item, own));
  }
  return Value::iterator(std::move(results));
}

template <Selection kSelection>
Value select_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  return select(runtime, input, args, kSelection);
}

constexpr FilterEntry kFilters[] = {
    {"batch", batch_filter},
    {"count", length_filter},
    {"dictsort", dictsort_filter},
    {"first", first_filter},
    {"groupby", groupby_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"map", map_filter},
    {"max", max_filter},
    {"min", min_filter},
    {"reject", select_filter<Selection{.keep = false, .by_attribute = false}>},
    {"rejectattr", select_filter<Selection{.keep = false, .by_attribute = true}>},
    {"reverse", reverse_filter},
    {"select", select_filter<Selection{.keep = true, .by_attribute = false}>},
    {"selectattr", select_filter<Selection{.keep = true, .by_attribute = true}>},
    {"slice", slice_filter},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", unique_filter},
};

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->function;
}

}  // namespace apus::data::jinja
