#pragma once

#include <string>
#include <vector>

#include "data/jinja_objects.h"

/// What the filters on sequences share: attribute paths, sort keys, selection by tests.
namespace apus::data::jinja {

/// The argument `attribute` of many filters: a name, an index, a path "a.b.0", several paths "a,b", or none.
class AttributeGetter {
 public:
  enum class Parts { kOne, kSeveral };
  /// `otherwise` replaces an undefined part unless it is none.
  explicit AttributeGetter(const Value& attribute, Parts parts = Parts::kOne,
                           Value otherwise = Value::none());

  /// The attribute of an item; the item itself for none; with kSeveral a list, one element a path.
  Value operator()(Runtime& runtime, const Value& item) const;

 private:
  std::vector<std::vector<Value>> paths_;
  bool several_ = false;
  Value otherwise_;

  void add_path(std::string_view path);
  Value follow(Runtime& runtime, const Value& item, const std::vector<Value>& path) const;
};

/// What is compared: text in lower case unless `case_sensitive`, anything else as it is.
Value sort_key(const Value& value, bool case_sensitive);

struct SortOrder {
  bool case_sensitive = false;
  bool reverse = false;
};
/// Sorts by attribute; equal items keep their order.
void sort_by(Runtime& runtime, std::vector<Value>& items, const AttributeGetter& get, const SortOrder& order);

/// select, reject, selectattr or rejectattr.
struct Selection {
  bool keep = true;
  bool by_attribute = false;
};
Value select(Runtime& runtime, const Value& input, CallArgs& args, Selection selection);

}  // namespace apus::data::jinja
