#include "data/jinja_globals.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "apus/base/clock.h"
#include "data/jinja_runtime.h"
#include "data/jinja_text.h"

namespace apus::data::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;  // the sandbox's bound

using GlobalFunction = Value (*)(Runtime& runtime, CallArgs& args);

/// A function of the environment.
struct Global final : FunctionObject {
  Global(const char* n, GlobalFunction f) : name(n), function(f) {}
  Value call(Runtime& runtime, CallArgs& args) const override { return function(runtime, args); }
  std::string repr() const override { return std::string("<function ") + name + ">"; }
  const char* name;
  GlobalFunction function;
};

// The number of items of a range, at most kMaxRange + 1.
int64_t range_length(int64_t start, int64_t stop, int64_t step) {
  const bool forward = step > 0;
  if (forward ? start >= stop : start <= stop) return 0;
  const uint64_t distance = forward ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                    : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = forward ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  return static_cast<int64_t>(std::min<uint64_t>((distance - 1) / stride, kMaxRange) + 1);
}

Value range_function(Runtime& runtime, CallArgs& args) {
  if (!args.named.empty()) fail_type("range() takes no keyword arguments");
  const auto& given = args.positional;
  if (given.empty() || given.size() > 3) {
    fail_type("range expected 1 to 3 arguments, got " + std::to_string(given.size()));
  }
  const int64_t start = given.size() > 1 ? to_index(given[0]) : 0;
  const int64_t stop = to_index(given[given.size() > 1 ? 1 : 0]);
  const int64_t step = given.size() > 2 ? to_index(given[2]) : 1;
  if (step == 0) fail(JinjaErrorKind::kOther, "ValueError: range() arg 3 must not be zero");
  const int64_t length = range_length(start, stop, step);
  if (length > kMaxRange) {
    fail(JinjaErrorKind::kOther,
         "OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
             std::to_string(kMaxRange) + ").");
  }
  runtime.step(static_cast<uint64_t>(length));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) items.push_back(Value::integer(RangeObject::at(start, step, i)));
  return Value::object(Type::kRange, std::make_shared<RangeObject>(start, stop, step, std::move(items)));
}

// dict(mapping or pairs, **more), for dict and namespace.
std::shared_ptr<DictObject> collect_dict(Runtime& runtime, CallArgs& args, const char* function) {
  if (args.positional.size() > 1) fail_type(std::string(function) + " expected at most 1 argument");
  auto dict = std::make_shared<DictObject>();
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    require_defined(source);
    if (source.is_dict()) {
      for (const auto& [key, value] : source.as_dict().entries) dict->set(key, value);
    } else {
      for (const Value& pair : Sequence(runtime, source)) {
        const Sequence parts(runtime, pair);
        if (parts.size() != 2) {
          fail(JinjaErrorKind::kOther, "ValueError: dictionary update sequence element has length " +
                                           std::to_string(parts.size()) + "; 2 is required");
        }
        dict->set(parts[0], parts[1]);
      }
    }
  }
  runtime.step(dict->entries.size());
  for (auto& [name, value] : args.named) dict->set(Value::string(name), std::move(value));
  return dict;
}

Value dict_function(Runtime& runtime, CallArgs& args) {
  return Value::dict(collect_dict(runtime, args, "dict"));
}

Value namespace_function(Runtime& runtime, CallArgs& args) {
  const auto values = collect_dict(runtime, args, "namespace");
  auto object = std::make_shared<NamespaceObject>();
  for (const auto& [key, value] : values->entries) object->set(to_text(runtime, key), value);
  runtime.adopt(object);
  return Value::object(Type::kNamespace, std::move(object));
}

Value raise_function(Runtime& runtime, CallArgs& args) {
  Arguments bound("raise_exception", args, {"message"}, 1);
  fail(JinjaErrorKind::kRaiseException, to_text(runtime, bound.at(0)));
}

Value strftime_function(Runtime& runtime, CallArgs& args) {
  Arguments bound("strftime_now", args, {"format"}, 1);
  const std::string& format = bound.text(0);
  const Clock* clock = runtime.options().clock;
  if (clock == nullptr) {
    fail(JinjaErrorKind::kOther, "the template asks for the time, and RenderOptions::clock is not set");
  }
  if (format.size() > 4096) fail(JinjaErrorKind::kLimit, "a time format of more than 4096 bytes");
  if (format.empty()) return Value::string("");
  const std::time_t now = std::chrono::system_clock::to_time_t(clock->wall_now());
  std::tm local{};
  localtime_r(&now, &local);
  // One more character tells an empty result from one that does not fit.
  std::string text(format.size() * 64 + 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), (format + "x").c_str(), &local));
  if (text.empty()) fail(JinjaErrorKind::kLimit, "a formatted time is too long");
  text.pop_back();
  return Value::string(std::move(text));
}

Value lipsum_function(Runtime&, CallArgs&) {
  fail(JinjaErrorKind::kNotSupported, "lipsum() is not supported: its text is random");
}

/// What cycler(...) gives.
struct Cycler final : FunctionObject, std::enable_shared_from_this<Cycler> {
  explicit Cycler(std::vector<Value> i) : items(std::move(i)) {
    for (const Value& item : items) size = enlarged(size, item);
  }
  Value call(Runtime&, CallArgs&) const override { fail_type("'Cycler' object is not callable"); }
  const char* type_name() const override { return "Cycler"; }
  std::string repr() const override { return "<Cycler object>"; }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) const override;
  std::vector<Value> items;
  mutable size_t position = 0;
};

struct CyclerMethod final : FunctionObject {
  CyclerMethod(std::shared_ptr<const Cycler> c, bool n) : cycler(std::move(c)), is_next(n) {
    size = cycler->size;
  }
  Value call(Runtime&, CallArgs& args) const override {
    Arguments bound(is_next ? "next" : "reset", args, {});
    const size_t at = cycler->position;
    cycler->position = is_next ? (at + 1) % cycler->items.size() : 0;
    return is_next ? cycler->items[at] : Value::none();
  }
  std::string repr() const override { return "<bound method of Cycler>"; }
  std::shared_ptr<const Cycler> cycler;
  bool is_next;
};

std::optional<Value> Cycler::attribute(Runtime&, std::string_view name) const {
  if (name == "current") return items[position];
  if (name == "pos") return Value::integer(static_cast<int64_t>(position));
  if (name == "items") return Value::tuple(items);
  if (name != "next" && name != "reset") return std::nullopt;
  return Value::object(Type::kFunction, std::make_shared<CyclerMethod>(shared_from_this(), name == "next"));
}

Value cycler_function(Runtime&, CallArgs& args) {
  if (!args.named.empty()) fail_type("cycler() takes no keyword arguments");
  if (args.positional.empty())
    fail(JinjaErrorKind::kOther, "RuntimeError: at least one item has to be provided");
  return Value::object(Type::kFunction, std::make_shared<Cycler>(std::move(args.positional)));
}

/// What joiner(sep) gives: nothing the first time it is called, then the separator.
struct Joiner final : FunctionObject {
  explicit Joiner(Value s) : separator(std::move(s)) { size = enlarged(size, separator); }
  Value call(Runtime&, CallArgs& args) const override {
    Arguments bound("joiner", args, {});
    return std::exchange(used, true) ? separator : Value::string("");
  }
  const char* type_name() const override { return "Joiner"; }
  std::string repr() const override { return "<Joiner object>"; }
  Value separator;
  mutable bool used = false;
};

Value joiner_function(Runtime&, CallArgs& args) {
  Arguments bound("joiner", args, {"sep"});
  return Value::object(Type::kFunction, std::make_shared<Joiner>(bound.value(0, Value::string(", "))));
}

struct GlobalEntry {
  const char* name;
  GlobalFunction function;
};
constexpr GlobalEntry kGlobals[] = {
    {"range", range_function},           {"dict", dict_function},
    {"namespace", namespace_function},   {"cycler", cycler_function},
    {"joiner", joiner_function},         {"lipsum", lipsum_function},
    {"raise_exception", raise_function}, {"strftime_now", strftime_function},
};

}  // namespace

Value find_global(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kGlobals), std::end(kGlobals), [&](const auto& g) { return name == g.name; });
  if (found == std::end(kGlobals)) return {};
  return Value::object(Type::kFunction, std::make_shared<Global>(found->name, found->function));
}

}  // namespace apus::data::jinja
