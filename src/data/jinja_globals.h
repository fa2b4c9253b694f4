#pragma once

#include <string>
#include <string_view>

#include "data/jinja_value.h"

namespace apus::data::jinja {

/// range, dict, namespace, cycler, joiner, lipsum, raise_exception, strftime_now; undefined for other names.
Value find_global(std::string_view name);

}  // namespace apus::data::jinja
