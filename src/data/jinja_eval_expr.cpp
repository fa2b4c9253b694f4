#include "data/jinja_ast.h"
#include "data/jinja_text.h"

namespace apus::data::jinja {
namespace {

void add_rest(Runtime& runtime, const ExprPtr& rest, CallArgs& args) {
  if (!rest) return;
  const Value value = runtime.eval(*rest);
  for (const Value& item : Sequence(runtime, value)) args.positional.push_back(item);
}

void add_named_rest(Runtime& runtime, const ExprPtr& rest, CallArgs& args) {
  if (!rest) return;
  const Value value = runtime.eval(*rest);
  require_defined(value);
  if (!value.is_dict()) fail_type("argument after ** must be a mapping, not " + type_name(value));
  for (const auto& [key, item] : value.as_dict().entries) {
    if (!key.is_string()) fail_type("keywords must be strings");
    args.named.emplace_back(key.text(), item);
  }
}

}  // namespace

CallArgs CallSite::eval(Runtime& runtime) const {
  CallArgs args;
  args.positional.reserve(positional.size());
  for (const ExprPtr& arg : positional) args.positional.push_back(runtime.eval(*arg));
  for (const auto& [name, arg] : named) args.named.emplace_back(name, runtime.eval(*arg));
  add_rest(runtime, rest, args);
  add_named_rest(runtime, named_rest, args);
  return args;
}

Value ConstExpr::eval(Runtime&) const {
  return value;
}

Value NameExpr::eval(Runtime& runtime) const {
  return runtime.lookup(symbol, name, global);
}

Value SequenceExpr::eval(Runtime& runtime) const {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExprPtr& item : items) values.push_back(runtime.eval(*item));
  return is_tuple ? Value::tuple(std::move(values)) : Value::list(std::move(values));
}

Value DictExpr::eval(Runtime& runtime) const {
  auto dict = std::make_shared<DictObject>();
  for (const auto& [key, value] : entries) {
    Value k = runtime.eval(*key);
    dict->set(std::move(k), runtime.eval(*value));
  }
  return Value::dict(std::move(dict));
}

Value UnaryExpr::eval(Runtime& runtime) const {
  const Value value = runtime.eval(*operand);
  switch (op) {
    case UnaryOp::kNot:
      return Value::boolean(!truth(value));
    case UnaryOp::kMinus:
      return negate(value);
    case UnaryOp::kPlus:
      return plus(value);
  }
  return {};
}

Value LogicExpr::eval(Runtime& runtime) const {
  Value value = runtime.eval(*left);
  return truth(value) == is_and ? runtime.eval(*right) : value;
}

Value BinaryExpr::eval(Runtime& runtime) const {
  Value a = runtime.eval(*left);
  const Value b = runtime.eval(*right);
  runtime.set_line(line);
  return binary(runtime, op, std::move(a), b);
}

Value ConcatExpr::eval(Runtime& runtime) const {
  std::string text;
  for (const ExprPtr& part : parts) {
    const Value value = runtime.eval(*part);
    const std::string other = value.is_string() ? std::string() : to_text(runtime, value);
    const std::string& piece = value.is_string() ? value.text() : other;
    runtime.grow(piece.size());
    runtime.require_size(text.size() + piece.size());
    text += piece;
  }
  return Value::string(std::move(text));
}

Value CompareExpr::eval(Runtime& runtime) const {
  Value left = runtime.eval(*first);
  bool holds = true;
  for (const auto& [op, operand] : rest) {
    Value right = runtime.eval(*operand);
    runtime.set_line(line);
    holds = compare(runtime, op, left, right);
    if (!holds) break;
    left = std::move(right);
  }
  return Value::boolean(holds);
}

Value ConditionalExpr::eval(Runtime& runtime) const {
  if (truth(runtime.eval(*test))) return runtime.eval(*then);
  if (otherwise) return runtime.eval(*otherwise);
  return Value::undefined_hint(
      "the inline if-expression evaluated to false and no else section was defined.");
}

Value AttributeExpr::eval(Runtime& runtime) const {
  const Value value = runtime.eval(*object);
  runtime.set_line(line);
  return get_attribute(runtime, value, name, methods);
}

Value ItemExpr::eval(Runtime& runtime) const {
  const Value value = runtime.eval(*object);
  const Value index = runtime.eval(*key);
  runtime.set_line(line);
  return get_item(runtime, value, index);
}

Value SliceExpr::eval(Runtime& runtime) const {
  const Value value = runtime.eval(*object);
  const auto bound = [&](const ExprPtr& expr) { return expr ? runtime.eval(*expr) : Value::none(); };
  const Value from = bound(start);
  const Value to = bound(stop);
  const Value by = bound(step);
  runtime.set_line(line);
  if (!is_constant || can_slice(value, from, to, by)) return slice(runtime, value, from, to, by);
  return Value::undefined_hint("'" + type_name(value) + "' object has no such slice");
}

Value CallExpr::call(Runtime& runtime, std::optional<Value> caller) const {
  Value function;
  Value self;
  const Method* method = nullptr;
  if (const auto* access = dynamic_cast<const AttributeExpr*>(callee.get())) {
    self = runtime.eval(*access->object);
    runtime.set_line(line);
    method = access->methods.find(self);
    if (method == nullptr || method->function == nullptr) {
      method = nullptr;
      function = get_attribute(runtime, self, access->name, access->methods);
    }
  } else {
    function = runtime.eval(*callee);
  }
  CallArgs arguments = args.eval(runtime);
  if (caller) arguments.named.emplace_back("caller", std::move(*caller));
  runtime.set_line(line);
  // A method called at once needs no object that binds it to its value.
  if (method != nullptr) return method->function(runtime, self, arguments);
  return call_value(runtime, function, arguments);
}

Value CallExpr::eval(Runtime& runtime) const {
  return call(runtime, std::nullopt);
}

Value FilterExpr::eval(Runtime& runtime) const {
  const Value value = runtime.eval(*input);
  CallArgs arguments = args.eval(runtime);
  runtime.set_line(line);
  if (filter == nullptr) fail(JinjaErrorKind::kOther, "No filter named '" + name + "' found.");
  return filter(runtime, value, arguments);
}

Value TestExpr::eval(Runtime& runtime) const {
  const Value value = runtime.eval(*input);
  CallArgs arguments = args.eval(runtime);
  runtime.set_line(line);
  if (test == nullptr) fail(JinjaErrorKind::kOther, "No test named '" + name + "' found.");
  return Value::boolean(test(runtime, value, arguments));
}

}  // namespace apus::data::jinja
