#include "data/jinja_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/jinja_runtime.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value list_from_json(Runtime& runtime, const Json& json) {
  std::vector<Value> items;
  items.reserve(json.size());
  for (const Json& item : json) items.push_back(from_json(runtime, item));
  return Value::list(std::move(items));
}

Value dict_from_json(Runtime& runtime, const Json& json) {
  auto dict = std::make_shared<DictObject>();
  dict->entries.reserve(json.size());
  for (const auto& [key, value] : json.items()) dict->set(Value::string(key), from_json(runtime, value));
  return Value::dict(std::move(dict));
}

void append_hex_escape(std::string& out, uint32_t unit) {
  char text[16];
  std::snprintf(text, sizeof text, "\\u%04x", unit);
  out += text;
}

// Code points beyond the first plane become surrogate pairs.
void append_ascii_escape(std::string& out, uint32_t cp) {
  if (cp >= 0x10000) {
    append_hex_escape(out, 0xD800 + ((cp - 0x10000) >> 10));
    cp = 0xDC00 + ((cp - 0x10000) & 0x3FF);
  }
  append_hex_escape(out, cp);
}

// The two-character escapes; nullptr for other characters.
const char* short_escape(char c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      return nullptr;
  }
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const char c = text[pos];
    const auto byte = static_cast<unsigned char>(c);
    if (const char* escape = short_escape(c)) {
      out += escape;
      ++pos;
    } else if (byte < 0x20 || (ensure_ascii && byte == 0x7F)) {
      append_hex_escape(out, byte);
      ++pos;
    } else if (byte < 0x80 || !ensure_ascii) {
      out += c;
      ++pos;
    } else {
      append_ascii_escape(out, next_code_point(text, pos));
    }
  }
  out += '"';
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return repr_float(value);
}

std::string json_scalar(const Value& value) {
  switch (value.type()) {
    case Type::kNone:
      return "null";
    case Type::kBool:
      return value.as_bool() ? "true" : "false";
    case Type::kInt:
      return std::to_string(value.as_integer());
    case Type::kBigInt:
      return value.as_big().to_string();
    case Type::kFloat:
      return json_float(value.as_real());
    default:
      fail_type("Object of type " + type_name(value) + " is not JSON serializable");
  }
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value, int level) {
    runtime_.step();
    runtime_.require_size(out.size());
    if (value.is_string()) {
      append_json_string(out, value.text(), style_.ensure_ascii);
    } else if (value.type() == Type::kList || value.type() == Type::kTuple) {
      write_list(value.items(), level);
    } else if (value.is_dict()) {
      write_dict(value.as_dict(), level);
    } else {
      out += json_scalar(value);
    }
  }

  std::string out;

 private:
  Runtime& runtime_;
  const JsonStyle& style_;

  void new_line(int level) {
    if (!style_.indent) return;
    out += '\n';
    runtime_.grow_times(level, style_.indent->size());
    for (int i = 0; i < level; ++i) out += *style_.indent;
  }

  void write_list(const std::vector<Value>& items, int level) {
    if (items.empty()) {
      out += "[]";
      return;
    }
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out += ']';
  }

  void write_dict(const DictObject& dict, int level) {
    if (dict.entries.empty()) {
      out += "{}";
      return;
    }
    out += '{';
    bool first = true;
    for (const auto* entry : ordered(dict)) {
      if (!first) out += style_.item_separator;
      first = false;
      new_line(level + 1);
      write_key(entry->first);
      out += style_.key_separator;
      write(entry->second, level + 1);
    }
    new_line(level);
    out += '}';
  }

  void write_key(const Value& key) {
    if (key.is_string()) {
      append_json_string(out, key.text(), style_.ensure_ascii);
    } else if (key.is_number() || key.is_none()) {
      out += '"' + json_scalar(key) + '"';
    } else {
      fail_type("keys must be str, int, float, bool or None, not " + type_name(key));
    }
  }

  std::vector<const std::pair<Value, Value>*> ordered(const DictObject& dict) const {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return less(a->first, b->first); });
    }
    return entries;
  }
};

}  // namespace

Value from_json(Runtime& runtime, const Json& json) {
  runtime.step();
  const DepthGuard depth(runtime);
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::big(BigInt::from_unsigned(json.get<uint64_t>()));
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return Value::string(json.get_ref<const std::string&>());
    case Json::value_t::array:
      return list_from_json(runtime, json);
    case Json::value_t::object:
      return dict_from_json(runtime, json);
    default:
      return Value::none();
  }
}

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value, 0);
  runtime.grow(writer.out.size());
  return std::move(writer.out);
}

}  // namespace apus::data::jinja
