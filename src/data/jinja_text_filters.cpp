#include <algorithm>

#include "data/jinja_filters.h"
#include "data/jinja_format.h"
#include "data/jinja_methods.h"
#include "data/jinja_runtime.h"
#include "data/jinja_split.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"
#include "data/jinja_wrap.h"

/// Filters on text.
namespace apus::data::jinja {
namespace {

// The method of str of that name, on the text of any value.
Value call_method(Runtime& runtime, const char* name, const Value& input, CallArgs& args) {
  const Value text = input.is_string() ? input : Value::string(to_text(runtime, input));
  return find_string_method(name)->function(runtime, text, args);
}

Value upper_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  return call_method(runtime, "upper", input, args);
}
Value lower_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  return call_method(runtime, "lower", input, args);
}
Value capitalize_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  return call_method(runtime, "capitalize", input, args);
}
Value trim_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  return call_method(runtime, "strip", input, args);
}

Value center_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("center", args, {"width"});
  CallArgs width;
  width.positional.push_back(Value::integer(bound.integer(0, 80)));
  return call_method(runtime, "center", input, width);
}

// Words begin after white space and after - ( { [ <; their first letter goes up, all others down.
Value title_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("title", args, {});
  const std::string text = to_text(runtime, input);
  runtime.grow(text.size() * 3);
  const auto separates = [](uint32_t cp) {
    return is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
  };
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const bool separator = separates(next_code_point(text, pos));
    if (separator) {
      out.append(text, begin, pos - begin);
      continue;
    }
    out += to_upper(std::string_view(text).substr(begin, pos - begin));
    const size_t rest = pos;
    for (size_t next = pos; next < text.size() && !separates(next_code_point(text, next));) pos = next;
    out += to_lower(std::string_view(text).substr(rest, pos - rest));
  }
  return Value::string(std::move(out));
}

Value replace_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("replace", args, {"old", "new", "count"}, 2);
  const int64_t limit = bound.is_set(2) ? bound.integer(2, -1) : -1;
  return Value::string(replace(runtime, to_text(runtime, input), to_text(runtime, bound.at(0)),
                               to_text(runtime, bound.at(1)), limit));
}

Value format_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    fail(JinjaErrorKind::kOther, "can't handle positional and keyword arguments at the same time");
  }
  Value values = Value::tuple(std::move(args.positional));
  if (!args.named.empty()) {
    auto dict = std::make_shared<DictObject>();
    for (auto& [name, value] : args.named) dict->set(Value::string(name), std::move(value));
    values = Value::dict(std::move(dict));
  }
  return Value::string(format_percent(runtime, to_text(runtime, input), values));
}

const std::string& str_input(const Value& input, const char* filter) {
  require_defined(input);
  if (!input.is_string()) {
    fail(JinjaErrorKind::kOther,
         std::string("AttributeError: ") + filter + " expects a str, got " + type_name(input));
  }
  return input.text();
}

Value indent_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("indent", args, {"width", "first", "blank"});
  std::string indent;
  if (bound.has(0) && bound.at(0).is_string()) {
    indent = bound.text(0);
  } else {
    const int64_t width = std::max<int64_t>(bound.integer(0, 4), 0);
    runtime.grow_times(width, 1);
    indent.assign(static_cast<size_t>(width), ' ');
  }
  std::string out = bound.flag(1, false) ? indent : "";
  require_defined(input);
  if (input.type() == Type::kList) str_input(input, "indent");
  if (!input.is_string()) fail_type("indent expects a str, got " + type_name(input));
  const std::string text = input.text() + "\n";
  bool first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!first) out += '\n';
    if (!first && (bound.flag(2, false) || !line.empty())) out += indent;
    first = false;
    runtime.require_size(out.size() + line.size() + indent.size());
    out += line;
  }
  runtime.grow(out.size());
  return input.is_markup() ? Value::markup(std::move(out)) : Value::string(std::move(out));
}

Value truncate_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const std::string end = bound.has(2) ? bound.text(2) : "...";
  const int64_t length = bound.integer(0, 255);
  const int64_t leeway = bound.is_set(3) ? bound.integer(3, 5) : 5;
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  if (length < end_length || leeway < 0) {
    fail(JinjaErrorKind::kOther,
         "AssertionError: expected length >= " + std::to_string(end_length) + " and leeway >= 0");
  }
  if (!input.is_string()) fail_type("truncate expects a str, got " + type_name(input));
  const std::string& text = input.text();
  runtime.grow(text.size());
  const auto size = static_cast<int64_t>(count_code_points(text));
  if (size <= length || size - length <= leeway) return input;
  std::string head = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!bound.flag(1, false)) head = head.substr(0, std::min(head.rfind(' '), head.size()));
  return Value::string(head + end);
}

Value wordcount_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("wordcount", args, {});
  int64_t words = 0;
  bool in_word = false;
  for (const uint32_t cp : decode(to_text(runtime, input))) {
    const bool word = cp == '_' || is_alnum(cp);
    words += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::integer(words);
}

Value wordwrap_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("wordwrap", args, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const std::string& text = str_input(input, "wordwrap");
  const WrapStyle style = {.width = bound.integer(0, 79),
                           .break_long_words = bound.flag(1, true),
                           .break_on_hyphens = bound.flag(3, true)};
  if (style.width <= 0) fail(JinjaErrorKind::kOther, "ValueError: invalid width (must be > 0)");
  const std::string newline = bound.is_set(2) ? bound.text(2) : "\n";
  std::string out;
  bool first = true;
  for (const std::string_view paragraph : split_lines(text, false)) {
    std::string wrapped;
    for (const std::string& line : wrap_line(paragraph, style))
      wrapped += (wrapped.empty() ? "" : newline) + line;
    out += (first ? "" : newline) + wrapped;
    first = false;
    runtime.require_size(out.size());
  }
  runtime.grow(out.size());
  return Value::string(std::move(out));
}

// ---- HTML and URLs

Value escape_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("escape", args, {});
  if (input.is_markup()) return input;
  const std::string text = to_text(runtime, input);
  runtime.grow(text.size() * 5);
  return Value::markup(escape_html(text));
}

Value force_escape_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("forceescape", args, {});
  return Value::markup(escape_html(to_text(runtime, input)));
}

Value safe_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("safe", args, {});
  return input.is_markup() ? input : Value::markup(to_text(runtime, input));
}

Value striptags_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("striptags", args, {});
  return Value::string(strip_tags(to_text(runtime, input)));
}

Value urlencode_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("urlencode", args, {});
  if (input.is_string() || !(input.is_dict() || input.has_items())) {
    return Value::string(percent_encode(to_text(runtime, input), "/"));
  }
  CallArgs none;
  const Value pairs =
      input.is_dict() ? find_container_method(Type::kDict, "items")->function(runtime, input, none) : input;
  std::string out;
  for (const Value& pair : Sequence(runtime, pairs)) {
    const Sequence parts(runtime, pair);
    if (parts.size() != 2) fail(JinjaErrorKind::kOther, "ValueError: urlencode expects pairs");
    if (!out.empty()) out += '&';
    out += percent_encode(to_text(runtime, parts[0]), "", ' ') + "=" +
           percent_encode(to_text(runtime, parts[1]), "", ' ');
  }
  return Value::string(std::move(out));
}

Value xmlattr_filter(Runtime& runtime, const Value& input, CallArgs& args) {
  Arguments bound("xmlattr", args, {"autospace"});
  require_defined(input);
  if (!input.is_dict()) {
    fail(JinjaErrorKind::kOther,
         "AttributeError: '" + type_name(input) + "' object has no attribute 'items'");
  }
  std::string out;
  for (const auto& [key, value] : input.as_dict().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    const std::string name = to_text(runtime, key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail(JinjaErrorKind::kOther, "ValueError: Invalid character in attribute name: " + repr_string(name));
    }
    const std::string text = to_text(runtime, value);
    out += (out.empty() ? "" : " ") + escape_html(name) + "=\"" +
           (value.is_markup() ? text : escape_html(text)) + "\"";
  }
  return Value::string(bound.flag(0, true) && !out.empty() ? " " + out : out);
}

constexpr FilterEntry kFilters[] = {
    {"capitalize", capitalize_filter},
    {"center", center_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"forceescape", force_escape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"lower", lower_filter},
    {"replace", replace_filter},
    {"safe", safe_filter},
    {"striptags", striptags_filter},
    {"title", title_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"upper", upper_filter},
    {"urlencode", urlencode_filter},
    {"wordcount", wordcount_filter},
    {"wordwrap", wordwrap_filter},
    {"xmlattr", xmlattr_filter},
};

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->function;
}

}  // namespace apus::data::jinja
