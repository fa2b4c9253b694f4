#pragma once

#include <string_view>

#include "data/jinja_objects.h"

namespace apus::data::jinja {

/// A test: `input is name(args)`.
using TestFunction = bool (*)(Runtime& runtime, const Value& input, CallArgs& args);

/// The test of a name; nullptr if there is none.
TestFunction find_test(std::string_view name);

}  // namespace apus::data::jinja
