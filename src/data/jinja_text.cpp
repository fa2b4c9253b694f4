#include "data/jinja_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "data/jinja_runtime.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

void append_escape(std::string& out, uint32_t cp) {
  char text[16];
  const char* format = cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(text, sizeof text, format, cp);
  out += text;
}

void append_repr_char(std::string& out, uint32_t cp, char quote) {
  switch (cp) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\\':
      out += "\\\\";
      return;
    default:
      break;
  }
  if (cp == static_cast<unsigned char>(quote)) {
    out += '\\';
    out += quote;
  } else if (is_printable(cp)) {
    append_code_point(out, cp);
  } else {
    append_escape(out, cp);
  }
}

/// Writes reprs one after the other, counting what it writes.
class Writer {
 public:
  explicit Writer(Runtime& runtime) : runtime_(runtime) {}

  void value(const Value& v) {
    runtime_.step();
    runtime_.require_size(out.size());
    switch (v.type()) {
      case Type::kList:
        items(v.items(), "[", "]");
        break;
      case Type::kTuple:
        items(v.items(), "(", v.items().size() == 1 ? ",)" : ")");
        break;
      case Type::kDict:
        dict(v.as_dict());
        break;
      case Type::kNamespace:
        name_space(v.as<NamespaceObject>());
        break;
      case Type::kView:
        view(v.as<ViewObject>());
        break;
      default:
        scalar(v);
    }
  }

  std::string out;

 private:
  Runtime& runtime_;

  void scalar(const Value& v) {
    switch (v.type()) {
      case Type::kUndefined:
        out += "Undefined";
        break;
      case Type::kNone:
        out += "None";
        break;
      case Type::kBool:
        out += v.as_bool() ? "True" : "False";
        break;
      case Type::kInt:
        out += std::to_string(v.as_integer());
        break;
      case Type::kBigInt:
        out += v.as_big().to_string();
        break;
      case Type::kFloat:
        out += repr_float(v.as_real());
        break;
      case Type::kString:
        out += v.is_markup() ? "Markup(" + repr_string(v.text()) + ")" : repr_string(v.text());
        break;
      case Type::kRange:
        range(v.as<RangeObject>());
        break;
      case Type::kIterator:
        out += "<" + std::string(v.as<IteratorObject>().type_name) + " object>";
        break;
      case Type::kFunction:
        out += v.as<FunctionObject>().repr();
        break;
      default:
        break;
    }
  }

  void items(const std::vector<Value>& all, const char* open, const char* close) {
    out += open;
    const char* separator = "";
    for (const Value& item : all) {
      out += separator;
      value(item);
      separator = ", ";
    }
    out += close;
  }

  void pair(const Value& k, const Value& v) {
    value(k);
    out += ": ";
    value(v);
  }

  void dict(const DictObject& d) {
    out += "{";
    const char* separator = "";
    for (const auto& [k, v] : d.entries) {
      out += separator;
      pair(k, v);
      separator = ", ";
    }
    out += "}";
  }

  void name_space(const NamespaceObject& object) {
    const DepthGuard depth(runtime_);  // a namespace may contain itself
    out += "<Namespace {";
    const char* separator = "";
    for (const auto& [name, v] : object.attributes) {
      out += separator;
      pair(Value::string(name), v);
      separator = ", ";
    }
    out += "}>";
  }

  void view(const ViewObject& object) {
    out += object.type_name;
    items(object.items, "([", "])");
  }

  void range(const RangeObject& r) {
    out += "range(" + std::to_string(r.start) + ", " + std::to_string(r.stop);
    if (r.step != 1) out += ", " + std::to_string(r.step);
    out += ")";
  }
};

}  // namespace

std::string repr_string(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) append_repr_char(out, next_code_point(text, pos), quote);
  out += quote;
  return out;
}

std::string repr_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  // The shortest digits, then Python's choice between the plain and the exponent form.
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view digits(buffer, static_cast<size_t>(end - buffer));
  const size_t e = digits.find('e');
  int exponent = 0;
  std::from_chars(digits.data() + e + (digits[e + 1] == '+' ? 2 : 1), end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(digits);
  const auto plain = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string text(buffer, plain);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string repr(Runtime& runtime, const Value& value) {
  Writer writer(runtime);
  writer.value(value);
  runtime.grow(writer.out.size());
  return std::move(writer.out);
}

std::string to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  return value.is_undefined() ? std::string() : repr(runtime, value);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace apus::data::jinja
