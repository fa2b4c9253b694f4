#pragma once

#include <string>
#include <string_view>

#include "data/jinja_objects.h"

namespace apus::data::jinja {

/// The % operator of str: "%s and %d" % (a, b), or "%(name)s" % a dict.
std::string format_percent(Runtime& runtime, std::string_view format, const Value& values);

/// str.format: "{} {0.name} {key!r:>10}".
std::string format_braces(Runtime& runtime, std::string_view format, const CallArgs& args);

}  // namespace apus::data::jinja
