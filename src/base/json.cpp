#include "apus/base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"

namespace apus {
namespace {

struct Place {
  int64_t line;
  int64_t column;
};

Place place_of(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const std::size_t line_start = before.rfind('\n');
  const std::size_t begin = line_start == std::string_view::npos ? 0 : line_start + 1;
  return {1 + std::ranges::count(before, '\n'), static_cast<int64_t>(before.size() - begin) + 1};
}

[[noreturn]] void fail_at(std::string_view text, std::size_t position, const std::string& source,
                          int64_t first_line, const std::string& reason) {
  const Place place = place_of(text, position);
  throw DataError(source, std::max<int64_t>(first_line, 1) + place.line - 1,
                  detail::concat("column ", place.column, ": ", reason));
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: WHY" -> "WHY".
std::string reason_of(const std::string& what) {
  const std::size_t place = what.find("parse error");
  const std::size_t colon = what.find(": ", place == std::string::npos ? 0 : place);
  return "not valid JSON: " + (colon == std::string::npos ? what : what.substr(colon + 2));
}

// Before anything is built, so that deep nesting can exhaust no stack when a document is copied or freed.
void check_depth(std::string_view text, const std::string& source, int64_t first_line) {
  int64_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMaxJsonDepth) {
      fail_at(text, i, source, first_line, detail::concat("nested deeper than ", kMaxJsonDepth, " levels"));
    }
  }
}

template <typename Json>
Json parse_document(std::string_view text, const std::string& source, int64_t first_line,
                    const typename Json::parser_callback_t& look = nullptr) {
  check_depth(text, source, first_line);
  try {
    return Json::parse(text.begin(), text.end(), look);
  } catch (const nlohmann::json::parse_error& error) {
    fail_at(text, error.byte > 0 ? error.byte - 1 : 0, source, first_line, reason_of(error.what()));
  } catch (const nlohmann::json::exception& error) {
    throw DataError(source, first_line, std::string("not valid JSON: ") + error.what());
  }
}

// Looks for keys that an object has twice, of which a parser keeps the last.
class UniqueKeys final {
 public:
  explicit UniqueKeys(const std::string& source) : source_(source) {}

  bool operator()(int, nlohmann::json::parse_event_t event, const nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) objects_.emplace_back();
    if (event == Event::object_end) objects_.pop_back();
    if (event != Event::key) return true;
    const auto& name = value.get_ref<const std::string&>();
    const bool is_new = objects_.back().insert(name).second;
    if (!is_new) {
      throw DataError(
          source_, 0,
          detail::concat("the key '", name, "' stands twice in one object; leave one of them out"));
    }
    return true;
  }

 private:
  const std::string& source_;
  std::vector<std::set<std::string>> objects_;
};

// Forwards to the caller's handler; broken text becomes a DataError with its place.
class PlacedSax final : public JsonSax {
 public:
  PlacedSax(JsonSax& inner, std::string_view text, const std::string& source)
      : inner_(inner), text_(text), source_(source) {}
  bool null() override { return inner_.null(); }
  bool boolean(bool value) override { return inner_.boolean(value); }
  bool number_integer(number_integer_t value) override { return inner_.number_integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return inner_.number_unsigned(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    return inner_.number_float(value, text);
  }
  bool string(string_t& value) override { return inner_.string(value); }
  bool binary(binary_t& value) override { return inner_.binary(value); }
  bool start_object(std::size_t count) override { return inner_.start_object(count); }
  bool key(string_t& name) override { return inner_.key(name); }
  bool end_object() override { return inner_.end_object(); }
  bool start_array(std::size_t count) override { return inner_.start_array(count); }
  bool end_array() override { return inner_.end_array(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail_at(text_, position > 0 ? position - 1 : 0, source_, 0, reason_of(error.what()));
  }

 private:
  JsonSax& inner_;
  std::string_view text_;
  const std::string& source_;
};

template <typename Json>
std::string dump_document(const Json& value, const JsonDumpOptions& options) {
  return value.dump(options.indent, ' ', options.ascii, Json::error_handler_t::replace);
}

// What stands there, short enough for a message.
std::string shown(const nlohmann::json& value) {
  if (value.is_structured()) return value.type_name();
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return detail::concat(value.type_name(), " ", text);
}

template <typename Int>
std::optional<Int> to_integer(const nlohmann::json& value) {
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<Int>::max())) {
    return std::nullopt;
  }
  if (value.is_number_float()) {  // 1e6 is written for a million
    const double number = value.get<double>();
    if (std::trunc(number) != number || std::fabs(number) > 0x1p53) return std::nullopt;
  } else if (!value.is_number_integer()) {
    return std::nullopt;
  }
  const auto wide = value.get<int64_t>();
  if (wide < std::numeric_limits<Int>::min() || wide > std::numeric_limits<Int>::max()) return std::nullopt;
  return static_cast<Int>(wide);
}

// One reader a type: its name for messages, and the value if it fits.
template <typename T>
struct Reader;

template <>
struct Reader<bool> {
  static std::string name() { return "true or false"; }
  static std::optional<bool> read(const nlohmann::json& value) {
    return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
  }
};

template <>
struct Reader<int> {
  static std::string name() { return "an integer of 32 bits"; }
  static std::optional<int> read(const nlohmann::json& value) { return to_integer<int>(value); }
};

template <>
struct Reader<int64_t> {
  static std::string name() { return "an integer"; }
  static std::optional<int64_t> read(const nlohmann::json& value) { return to_integer<int64_t>(value); }
};

template <>
struct Reader<double> {
  static std::string name() { return "a number"; }
  static std::optional<double> read(const nlohmann::json& value) {
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  }
};

template <>
struct Reader<std::string> {
  static std::string name() { return "a string"; }
  static std::optional<std::string> read(const nlohmann::json& value) {
    return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
  }
};

template <>
struct Reader<nlohmann::json> {
  static std::string name() { return "a value"; }
  static std::optional<nlohmann::json> read(const nlohmann::json& value) { return value; }
};

template <typename T>
struct Reader<std::vector<T>> {
  static std::string name() { return "a list, each element " + Reader<T>::name(); }
  static std::optional<std::vector<T>> read(const nlohmann::json& value) {
    if (!value.is_array()) return std::nullopt;
    std::vector<T> out;
    for (const nlohmann::json& element : value) {
      std::optional<T> one = Reader<T>::read(element);
      if (!one) return std::nullopt;
      out.push_back(std::move(*one));
    }
    return out;
  }
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& source, int64_t first_line) {
  return parse_document<nlohmann::json>(text, source, first_line);
}

nlohmann::json parse_json_settings(std::string_view text, const std::string& source) {
  return parse_document<nlohmann::json>(text, source, 0, UniqueKeys(source));
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& source,
                                          int64_t first_line) {
  return parse_document<nlohmann::ordered_json>(text, source, first_line);
}

bool sax_parse(std::string_view text, const std::string& source, JsonSax& handler) {
  check_depth(text, source, 0);
  PlacedSax placed(handler, text, source);
  return nlohmann::json::sax_parse(text.begin(), text.end(), &placed);
}

bool StrictJsonSax::null() {
  return unexpected("null");
}
bool StrictJsonSax::boolean(bool) {
  return unexpected("a boolean");
}
bool StrictJsonSax::number_integer(number_integer_t) {
  return unexpected("a negative integer");
}
bool StrictJsonSax::number_unsigned(number_unsigned_t) {
  return unexpected("an integer");
}
bool StrictJsonSax::number_float(number_float_t, const string_t&) {
  return unexpected("a fraction");
}
bool StrictJsonSax::string(string_t&) {
  return unexpected("a string");
}
bool StrictJsonSax::binary(binary_t&) {
  return unexpected("binary data");
}
bool StrictJsonSax::start_object(std::size_t) {
  return unexpected("an object");
}
bool StrictJsonSax::key(string_t&) {
  return unexpected("a key");
}
bool StrictJsonSax::end_object() {
  return unexpected("the end of an object");
}
bool StrictJsonSax::start_array(std::size_t) {
  return unexpected("a list");
}
bool StrictJsonSax::end_array() {
  return unexpected("the end of a list");
}

bool StrictJsonSax::parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
  throw DataError("JSON", 0, reason_of(error.what()));
}

bool StrictJsonSax::unexpected(std::string_view what) {
  throw DataError("JSON", 0, detail::concat("unexpected ", what));
}

nlohmann::json load_json_file(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

nlohmann::json load_json_settings(const std::filesystem::path& path) {
  return parse_json_settings(read_file(path), path.string());
}

nlohmann::ordered_json load_ordered_json_file(const std::filesystem::path& path) {
  return parse_ordered_json(read_file(path), path.string());
}

std::string dump_json(const nlohmann::json& value, const JsonDumpOptions& options) {
  return dump_document(value, options);
}

std::string dump_json(const nlohmann::ordered_json& value, const JsonDumpOptions& options) {
  return dump_document(value, options);
}

JsonView::JsonView(const nlohmann::json& value, std::string source, std::string where)
    : value_(value), source_(std::move(source)), where_(std::move(where)) {
  if (value_.is_object()) return;
  const std::string subject = where_.empty() ? std::string("the file") : "key '" + where_ + "'";
  throw DataError(source_, 0, detail::concat(subject, ": expected an object, found ", shown(value_)));
}

bool JsonView::has(const std::string& key) const {
  const auto found = value_.find(key);
  return found != value_.end() && !found->is_null();
}

std::string JsonView::path_of(const std::string& key) const {
  return where_.empty() ? key : where_ + "." + key;
}

template <typename T>
std::optional<T> JsonView::find(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  const nlohmann::json& found = value_.at(key);
  std::optional<T> value = Reader<T>::read(found);
  if (value) return value;
  throw DataError(
      source_, 0,
      detail::concat("key '", path_of(key), "': expected ", Reader<T>::name(), ", found ", shown(found)));
}

template <typename T>
T JsonView::require(const std::string& key) const {
  std::optional<T> value = find<T>(key);
  if (value) return std::move(*value);
  throw DataError(source_, 0,
                  detail::concat("key '", path_of(key), "' is missing; expected ", Reader<T>::name()));
}

JsonView JsonView::object(const std::string& key) const {
  std::optional<JsonView> found = find_object(key);
  if (found) return *found;
  throw DataError(source_, 0, detail::concat("key '", path_of(key), "' is missing; expected an object"));
}

std::optional<JsonView> JsonView::find_object(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  return JsonView(value_.at(key), source_, path_of(key));
}

std::vector<std::string> JsonView::keys() const {
  std::vector<std::string> out;
  for (const auto& item : value_.items()) out.push_back(item.key());
  return out;
}

#define APUS_INSTANTIATE_JSON_VIEW(T)                                                 \
  template APUS_API std::optional<T> JsonView::find<T>(const std::string& key) const; \
  template APUS_API T JsonView::require<T>(const std::string& key) const
APUS_INSTANTIATE_JSON_VIEW(bool);
APUS_INSTANTIATE_JSON_VIEW(int);
APUS_INSTANTIATE_JSON_VIEW(int64_t);
APUS_INSTANTIATE_JSON_VIEW(double);
APUS_INSTANTIATE_JSON_VIEW(std::string);
APUS_INSTANTIATE_JSON_VIEW(nlohmann::json);
APUS_INSTANTIATE_JSON_VIEW(std::vector<bool>);
APUS_INSTANTIATE_JSON_VIEW(std::vector<int>);
APUS_INSTANTIATE_JSON_VIEW(std::vector<int64_t>);
APUS_INSTANTIATE_JSON_VIEW(std::vector<double>);
APUS_INSTANTIATE_JSON_VIEW(std::vector<std::string>);
#undef APUS_INSTANTIATE_JSON_VIEW

}  // namespace apus
