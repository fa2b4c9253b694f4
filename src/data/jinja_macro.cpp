#include "data/jinja_macro.h"

#include <algorithm>

namespace apus::data::jinja {

Value make_macro(Runtime& runtime, const MacroDefinition& definition) {
  return Value::object(Type::kFunction, std::make_shared<MacroObject>(definition, runtime.capture_scope()));
}

std::string MacroObject::quoted_name() const {
  return definition.name.empty() ? "None" : "'" + definition.name + "'";
}

std::string MacroObject::repr() const {
  return "<Macro " + (definition.name.empty() ? "anonymous" : quoted_name()) + ">";
}

Value MacroObject::call(Runtime& runtime, CallArgs& args) const {
  const DepthGuard depth(runtime);
  const int line = runtime.line();
  const ScopeGuard guard(runtime, scope);
  bind(runtime, args);
  CaptureGuard capture(runtime);
  exec_body(runtime, definition.body);
  runtime.set_line(line);
  return Value::string(capture.take());
}

void MacroObject::bind_parameters(Runtime& runtime, CallArgs& args) const {
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const MacroParameter& parameter = definition.parameters[i];
    if (i < args.positional.size()) {
      runtime.assign(parameter.symbol, args.positional[i]);
    } else if (auto value = args.take(parameter.name.text())) {
      runtime.assign(parameter.symbol, std::move(*value));
    } else if (parameter.otherwise) {
      runtime.assign(parameter.symbol, runtime.eval(*parameter.otherwise));  // sees the parameters before it
    } else {
      runtime.assign(parameter.symbol,
                     Value::undefined_hint("parameter '" + parameter.name.text() + "' was not provided"));
    }
  }
}

void MacroObject::bind(Runtime& runtime, CallArgs& args) const {
  bind_parameters(runtime, args);
  const size_t count = definition.parameters.size();
  const bool caller_is_parameter = std::any_of(definition.parameters.begin(), definition.parameters.end(),
                                               [](const auto& p) { return p.name.text() == "caller"; });
  if (definition.uses_caller && !caller_is_parameter) {
    auto caller = args.take("caller");
    runtime.assign(definition.caller_symbol,
                   caller ? std::move(*caller) : Value::undefined_hint("No caller defined"));
  }
  if (definition.uses_kwargs) {
    auto rest = std::make_shared<DictObject>();
    for (auto& [name, value] : args.named) rest->set(Value::string(name), std::move(value));
    runtime.assign(definition.kwargs_symbol, Value::dict(std::move(rest)));
  } else if (!args.named.empty()) {
    fail_type("macro " + quoted_name() + " takes no keyword argument '" + args.named.front().first + "'");
  }
  if (definition.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < args.positional.size(); ++i) rest.push_back(std::move(args.positional[i]));
    runtime.assign(definition.varargs_symbol, Value::tuple(std::move(rest)));
  } else if (args.positional.size() > count) {
    fail_type("macro " + quoted_name() + " takes not more than " + std::to_string(count) + " argument(s)");
  }
}

std::optional<Value> MacroObject::attribute(Runtime&, std::string_view name) const {
  if (name == "name") return definition.name.empty() ? Value::none() : Value::string(definition.name);
  if (name == "catch_kwargs") return Value::boolean(definition.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(definition.uses_varargs);
  if (name == "caller") return Value::boolean(definition.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const MacroParameter& parameter : definition.parameters) names.push_back(parameter.name);
  return Value::tuple(std::move(names));
}

}  // namespace apus::data::jinja
