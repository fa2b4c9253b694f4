#include "data/jinja_ast.h"
#include "data/jinja_loop.h"
#include "data/jinja_macro.h"
#include "data/jinja_text.h"

namespace apus::data::jinja {

Flow exec_body(Runtime& runtime, const Body& body) {
  const DepthGuard depth(runtime);
  for (const auto& statement : body) {
    runtime.step();
    runtime.set_line(statement->line);
    const Flow flow = statement->exec(runtime);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

void Target::assign(Runtime& runtime, Value value) const {
  if (kind == Kind::kName) {
    runtime.assign(symbol, std::move(value));
    return;
  }
  if (kind == Kind::kAttribute) {
    const Value owner = runtime.lookup(symbol, name, {});
    if (owner.type() != Type::kNamespace) {
      fail(JinjaErrorKind::kOther, "cannot assign attribute on non-namespace object");
    }
    owner.as<NamespaceObject>().set(attribute, std::move(value));
    return;
  }
  const Sequence items(runtime, value);
  if (items.size() != parts.size()) {
    fail(JinjaErrorKind::kOther, "ValueError: expected " + std::to_string(parts.size()) +
                                     " values to unpack, got " + std::to_string(items.size()));
  }
  for (size_t i = 0; i < parts.size(); ++i) parts[i].assign(runtime, items[i]);
}

Flow TextStmt::exec(Runtime& runtime) const {
  runtime.write(text);
  return Flow::kNext;
}

Flow PrintStmt::exec(Runtime& runtime) const {
  const Value value = runtime.eval(*expr);
  runtime.print(value);
  return Flow::kNext;
}

Flow IfStmt::exec(Runtime& runtime) const {
  for (const auto& [test, body] : branches) {
    if (truth(runtime.eval(*test))) return exec_body(runtime, body);
  }
  return exec_body(runtime, otherwise);
}

std::vector<Value> ForStmt::filtered(Runtime& runtime, const Value& source) const {
  const Sequence all(runtime, source);
  if (!filter) return all.copy();
  std::vector<Value> kept;
  ScopeGuard scope(runtime);
  for (const Value& item : all) {
    scope.renew();
    target.assign(runtime, item);
    if (truth(runtime.eval(*filter))) kept.push_back(item);
  }
  return kept;
}

Flow ForStmt::exec(Runtime& runtime) const {
  return run(runtime, runtime.eval(*iterable), 0);
}

Flow ForStmt::run(Runtime& runtime, const Value& source, int depth0) const {
  std::vector<Value> items = filtered(runtime, source);
  Scope* const around = recursive ? runtime.capture_scope() : runtime.scope();
  const auto loop = std::make_shared<LoopObject>(*this, std::move(items), around, depth0);
  const Value loop_value = Value::object(Type::kFunction, loop);
  Flow flow = Flow::kNext;
  bool completed = false;  // some iteration ran to its end: jumps do not count, as in Jinja
  ScopeGuard scope(runtime);
  for (size_t i = 0; i < loop->items.size() && flow != Flow::kBreak; ++i) {
    runtime.step();
    scope.renew();
    loop->index0 = i;
    runtime.assign(loop_symbol, loop_value);
    target.assign(runtime, loop->items[i]);
    flow = exec_body(runtime, body);
    completed = completed || flow == Flow::kNext;
  }
  loop->finished = true;
  loop->last_changed.reset();
  if (completed || otherwise.empty()) return Flow::kNext;
  scope.renew();
  return exec_body(runtime, otherwise);
}

Flow SetStmt::exec(Runtime& runtime) const {
  target.assign(runtime, runtime.eval(*value));
  return Flow::kNext;
}

Flow CaptureStmt::exec(Runtime& runtime) const {
  Value text;
  {
    const ScopeGuard scope(runtime);
    CaptureGuard capture(runtime);
    const Flow flow = exec_body(runtime, body);
    if (flow != Flow::kNext) return flow;
    text = Value::string(capture.take());
  }
  if (filters) {
    const ScopeGuard scope(runtime);
    runtime.assign(text_symbol, std::move(text));
    text = runtime.eval(*filters);
  }
  if (target) {
    target->assign(runtime, std::move(text));
  } else {
    runtime.print(text);
  }
  return Flow::kNext;
}

Flow MacroStmt::exec(Runtime& runtime) const {
  runtime.assign(symbol, make_macro(runtime, macro));
  return Flow::kNext;
}

Flow CallBlockStmt::exec(Runtime& runtime) const {
  const Value text = call->call(runtime, make_macro(runtime, caller));
  runtime.print(text);
  return Flow::kNext;
}

Flow WithStmt::exec(Runtime& runtime) const {
  std::vector<Value> values;
  for (const auto& binding : bindings) values.push_back(runtime.eval(*binding.second));
  const ScopeGuard scope(runtime);
  for (size_t i = 0; i < bindings.size(); ++i) bindings[i].first.assign(runtime, std::move(values[i]));
  return exec_body(runtime, body);
}

Flow GenerationStmt::exec(Runtime& runtime) const {
  std::string text;
  {
    const ScopeGuard scope(runtime);
    CaptureGuard capture(runtime);
    exec_body(runtime, body);
    text = capture.take();
  }
  runtime.add_generation(text);
  runtime.write(text);
  return Flow::kNext;
}

Flow BlockStmt::exec(Runtime& runtime) const {
  const ScopeGuard scope(runtime, scoped ? runtime.scope() : runtime.root());
  return exec_body(runtime, body);
}

Flow JumpStmt::exec(Runtime&) const {
  return flow;
}

Flow LoadStmt::exec(Runtime&) const {
  fail_type("no loader for this environment specified");
}

}  // namespace apus::data::jinja
