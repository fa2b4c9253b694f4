#pragma once

#include <string>
#include <string_view>

#include "data/jinja_objects.h"

namespace apus::data::jinja {

/// Python's str(): what printing shows. Undefined is empty.
std::string to_text(Runtime& runtime, const Value& value);
/// Python's repr().
std::string repr(Runtime& runtime, const Value& value);
std::string repr_string(std::string_view text);
/// The shortest decimal that reads back as the same double, as repr writes it: 0.1, 1e-05, 1e+16, nan.
std::string repr_float(double value);
/// HTML escaping of & < > " and '.
std::string escape_html(std::string_view text);

}  // namespace apus::data::jinja
