#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "data/jinja_objects.h"

namespace apus::data::jinja {

/// A JSON value as a template sees it. Throws kLimit if it is nested too deep.
Value from_json(Runtime& runtime, const nlohmann::ordered_json& json);

/// How json.dumps writes.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's; absent: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// Python's json.dumps. Throws type for what JSON cannot say.
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace apus::data::jinja
