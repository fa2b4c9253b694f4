#pragma once

#include <string_view>

#include "data/jinja_objects.h"

namespace apus::data::jinja {

/// A filter: `input | name(args)`.
using FilterFunction = Value (*)(Runtime& runtime, const Value& input, CallArgs& args);

/// The filter of a name; nullptr if there is none.
FilterFunction find_filter(std::string_view name);
/// True for the filters of Jinja that this engine leaves out.
bool is_unsupported_filter(std::string_view name);

/// One entry of a table of filters.
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

/// The tables that find_filter looks through.
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
FilterFunction find_value_filter(std::string_view name);

}  // namespace apus::data::jinja
