#include "data/jinja_format.h"

#include <cmath>

#include "data/jinja_format_spec.h"
#include "data/jinja_methods.h"
#include "data/jinja_runtime.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

[[noreturn]] void fail_value(const std::string& reason) {
  fail(JinjaErrorKind::kOther, "ValueError: " + reason);
}

/// One % format with its values.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, std::string_view format, const Value& values)
      : runtime_(runtime), format_(format), values_(values) {}

  std::string run() {
    std::string out;
    while (pos_ < format_.size()) {
      const char c = format_[pos_++];
      out += c == '%' ? field() : std::string(1, c);
      runtime_.require_size(out.size());
    }
    if (!all_used()) fail_type("not all arguments converted during string formatting");
    return out;
  }

 private:
  Runtime& runtime_;
  std::string_view format_;
  const Value& values_;
  size_t pos_ = 0;
  size_t next_ = 0;

  // What can be indexed counts as a mapping, and a mapping need not be used.
  bool all_used() const {
    switch (values_.type()) {
      case Type::kTuple:
        return next_ >= values_.items().size();
      case Type::kDict:
      case Type::kList:
      case Type::kRange:
      case Type::kUndefined:
        return true;
      default:
        return next_ > 0;
    }
  }

  Value next_value() {
    if (values_.type() == Type::kTuple) {
      if (next_ < values_.items().size()) return values_.items()[next_++];
    } else if (next_++ == 0) {
      return values_;
    }
    fail_type("not enough arguments for format string");
  }

  Value named_value() {
    const size_t end = format_.find(')', pos_);
    if (end == std::string_view::npos) fail_value("incomplete format key");
    if (!values_.is_dict()) fail_type("format requires a mapping");
    const std::string key(format_.substr(pos_ + 1, end - pos_ - 1));
    pos_ = end + 1;
    const Value* found = values_.as_dict().find(key);
    if (found == nullptr) fail(JinjaErrorKind::kOther, "KeyError: " + repr_string(key));
    return *found;
  }

  void flags(FieldSpec& spec) {
    for (; pos_ < format_.size(); ++pos_) {
      switch (format_[pos_]) {
        case '-':
          spec.align = '<';
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          spec.sign = spec.sign == '+' ? '+' : ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          spec.zero = true;
          break;
        default:
          return;
      }
    }
  }

  int64_t count() {
    if (pos_ >= format_.size() || format_[pos_] != '*') return parse_count(format_, pos_);
    ++pos_;
    return to_index(next_value());
  }

  std::string field() {
    FieldSpec spec;
    std::optional<Value> named;
    if (pos_ < format_.size() && format_[pos_] == '(') named = named_value();
    flags(spec);
    spec.width = count();
    if (pos_ < format_.size() && format_[pos_] == '.') {
      ++pos_;
      spec.precision = count();
    }
    while (pos_ < format_.size() && (format_[pos_] == 'l' || format_[pos_] == 'h' || format_[pos_] == 'L'))
      ++pos_;
    if (pos_ >= format_.size()) fail_value("incomplete format");
    spec.type = format_[pos_++];
    if (spec.type == '%') return "%";
    if (spec.align == '\0') spec.align = spec.zero ? '\0' : '>';
    return convert(named ? *named : next_value(), spec);
  }

  std::string convert(const Value& value, FieldSpec spec) {
    const char type = spec.type;
    if (type == 's' || type == 'r' || type == 'a') {
      std::string text = type == 's' ? to_text(runtime_, value) : repr(runtime_, value);
      if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<size_t>(spec.precision)));
      return pad_field(runtime_, std::move(text), spec, false);
    }
    if (type == 'c' && value.is_string()) return pad_field(runtime_, value.text(), spec, false);
    const std::string_view integers = "diuoxXc";
    const std::string_view floats = "eEfFgG";
    if (integers.find(type) == std::string_view::npos && floats.find(type) == std::string_view::npos) {
      fail_value(std::string("unsupported format character '") + type + "'");
    }
    if (!value.is_number()) {
      require_defined(value);
      fail_type(std::string("%") + type + " format: a number is required, not " + type_name(value));
    }
    if (floats.find(type) != std::string_view::npos) return format_float(runtime_, to_double(value), spec);
    if (value.is_float() && !std::isfinite(value.as_real())) {
      fail_value("cannot convert float infinity or NaN to integer");
    }
    if (type == 'i' || type == 'u') spec.type = 'd';
    return format_integer(runtime_,
                          value.is_float() ? Value::big(BigInt::from_double(value.as_real())) : value, spec);
  }
};

/// One str.format with its arguments.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const CallArgs& args) : runtime_(runtime), args_(args) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 1) fail_value("Max string recursion exceeded");
    std::string out;
    for (size_t pos = 0; pos < format.size();) {
      const char c = format[pos++];
      const bool doubled = pos < format.size() && format[pos] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        ++pos;
      } else if (c == '}') {
        fail_value("Single '}' encountered in format string");
      } else if (c == '{') {
        out += field(body(format, pos), depth);
      } else {
        out += c;
      }
      runtime_.require_size(out.size());
    }
    return out;
  }

 private:
  Runtime& runtime_;
  const CallArgs& args_;
  size_t next_ = 0;

  // The text up to the brace that closes the field; `pos` moves behind it.
  static std::string_view body(std::string_view format, size_t& pos) {
    const size_t begin = pos;
    for (int open = 1; pos < format.size(); ++pos) {
      open += format[pos] == '{' ? 1 : format[pos] == '}' ? -1 : 0;
      if (open == 0) return format.substr(begin, pos++ - begin);
    }
    fail_value("expected '}' before end of string");
  }

  std::string field(std::string_view body, int depth) {
    size_t end = 0;
    while (end < body.size() && body[end] != '!' && body[end] != ':')
      end += body[end] == '[' ? skip_index(body, end) : 1;
    const Value value = look_up(body.substr(0, end));
    char conversion = '\0';
    if (end < body.size() && body[end] == '!') {
      if (end + 1 >= body.size()) fail_value("end of string while looking for conversion specifier");
      conversion = body[end + 1];
      end += 2;
    }
    const std::string spec = end < body.size() ? run(body.substr(end + 1), depth + 1) : "";
    return render(value, conversion, spec);
  }

  static size_t skip_index(std::string_view body, size_t pos) {
    const size_t close = body.find(']', pos);
    if (close == std::string_view::npos) fail_value("Missing ']' in format string");
    return close - pos + 1;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 &&
           text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  Value first(std::string_view name) {
    if (name.empty() || is_number(name)) {
      const size_t index = name.empty() ? next_++ : std::stoul(std::string(name));
      if (index < args_.positional.size()) return args_.positional[index];
      fail(JinjaErrorKind::kOther,
           "IndexError: Replacement index " + std::to_string(index) + " out of range");
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    fail(JinjaErrorKind::kOther, "KeyError: " + repr_string(name));
  }

  Value look_up(std::string_view path) {
    size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first(path.substr(0, end));
    while (end < path.size()) {
      const bool item = path[end] == '[';
      const size_t begin = end + 1;
      end = item ? std::min(path.find(']', begin), path.size())
                 : std::min(path.find_first_of(".[", begin), path.size());
      const std::string name(path.substr(begin, end - begin));
      if (item && end < path.size()) ++end;
      const Value key = item && is_number(name) ? Value::integer(std::stoll(name)) : Value::string(name);
      value = item ? get_item(runtime_, value, key) : get_attribute(runtime_, value, key, find_methods(name));
    }
    return value;
  }

  static FieldSpec parse_spec(const std::string& text) {
    FieldSpec spec;
    size_t pos = 0;
    const auto is_align = [&](size_t at) {
      return at < text.size() && std::string_view("<>^=").find(text[at]) != std::string_view::npos;
    };
    size_t after_fill = 0;
    const uint32_t fill = text.empty() ? 0 : next_code_point(text, after_fill);
    if (!text.empty() && is_align(after_fill)) {
      spec.fill = fill;
      spec.align = text[after_fill];
      pos = after_fill + 1;
    } else if (is_align(0)) {
      spec.align = text[pos++];
    }
    const auto skip = [&](char c) { return pos < text.size() && text[pos] == c ? ++pos > 0 : false; };
    for (const char sign : {'+', '-', ' '}) {
      if (skip(sign)) spec.sign = sign;
    }
    spec.alternate = skip('#');
    spec.zero = skip('0');
    spec.width = parse_count(text, pos);
    for (const char separator : {',', '_'}) {
      if (skip(separator)) spec.grouping = separator;
    }
    if (skip('.')) spec.precision = parse_count(text, pos);
    if (pos < text.size()) spec.type = text[pos++];
    if (pos < text.size()) fail_value("Invalid format specifier '" + text + "'");
    return spec;
  }

  std::string render(const Value& value, char conversion, const std::string& spec_text) {
    require_defined_for(value, spec_text);
    const FieldSpec spec = parse_spec(spec_text);
    if (conversion == '\0' && value.is_float()) return format_float(runtime_, value.as_real(), spec);
    const bool plain_bool = value.is_bool() && spec_text.empty();
    if (conversion == '\0' && value.is_int() && !plain_bool && spec.type != 's') {
      return format_integer(runtime_, value, spec);
    }
    if (spec.type != '\0' && spec.type != 's') {
      fail_value(std::string("Unknown format code '") + spec.type + "' for object of type '" +
                 type_name(value) + "'");
    }
    std::string text =
        conversion == 'r' || conversion == 'a' ? repr(runtime_, value) : to_text(runtime_, value);
    if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<size_t>(spec.precision)));
    return pad_field(runtime_, std::move(text), spec, false);
  }

  static void require_defined_for(const Value& value, const std::string& spec) {
    const bool takes_spec = value.is_string() || value.is_number();
    if (!takes_spec && !spec.empty() && !value.is_undefined()) {
      fail_type("unsupported format string passed to " + type_name(value) + ".__format__");
    }
  }
};

}  // namespace

std::string format_percent(Runtime& runtime, std::string_view format, const Value& values) {
  return PercentFormatter(runtime, format, values).run();
}

std::string format_braces(Runtime& runtime, std::string_view format, const CallArgs& args) {
  return BraceFormatter(runtime, args).run(format, 0);
}

}  // namespace apus::data::jinja
