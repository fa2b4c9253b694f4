#include "data/jinja_runtime.h"

#include <nlohmann/json.hpp>

#include "data/jinja_ast.h"
#include "data/jinja_json.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

namespace apus::data::jinja {

const Value* Scope::find(Symbol symbol) const {
  for (const auto& [key, value] : variables) {
    if (key == symbol) return &value;
  }
  return nullptr;
}

void Scope::set(Symbol symbol, Value value) {
  for (auto& [key, old] : variables) {
    if (key != symbol) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(symbol, std::move(value));
}

Runtime::Runtime(const Program& program, const nlohmann::ordered_json& context, const RenderOptions& options)
    : program_(program),
      options_(options),
      context_(program.names.size()),
      in_context_(program.names.size()) {
  for (const auto& [key, value] : context.items()) {
    const auto found = program.symbols.find(key);
    if (found == program.symbols.end()) continue;
    context_[found->second] = from_json(*this, value);
    in_context_[found->second] = true;
  }
  root_ = scope_ = acquire_scope(nullptr);
}

Runtime::~Runtime() {
  // Scopes and namespaces may refer to each other through macros: empty them one by one.
  for (const auto& scope : scopes_) scope->variables.clear();
  for (const auto& object : namespaces_) object->attributes.clear();
}

void Runtime::fail_steps() const {
  fail(JinjaErrorKind::kLimit, "the template takes more than " + std::to_string(options_.limits.max_steps) +
                                   " steps (RenderLimits::max_steps)");
}

void Runtime::fail_output() const {
  fail(JinjaErrorKind::kLimit, "the template builds a text of more than " +
                                   std::to_string(options_.limits.max_output_bytes) +
                                   " bytes (RenderLimits::max_output_bytes)");
}

void Runtime::fail_depth() const {
  fail(JinjaErrorKind::kLimit, "the template recurses deeper than " +
                                   std::to_string(options_.limits.max_depth) +
                                   " levels (RenderLimits::max_depth)");
}

void Runtime::grow_times(int64_t count, size_t bytes) {
  if (count <= 0 || bytes == 0) return;
  if (static_cast<uint64_t>(count) > options_.limits.max_output_bytes / bytes) fail_output();
  grow(static_cast<size_t>(count) * bytes);
}

Value Runtime::eval(const Expr& expr) {
  step();
  const DepthGuard depth(*this);
  return expr.eval(*this);
}

Value Runtime::lookup(Symbol symbol, const Value& name, const Value& global) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* found = scope->find(symbol)) return *found;
  }
  if (in_context_[symbol]) return context_[symbol];
  return global.is_undefined() ? Value::undefined_name(name) : global;
}

Scope* Runtime::acquire_scope(Scope* parent) {
  if (free_scopes_.empty()) {
    scopes_.push_back(std::make_unique<Scope>());
    free_scopes_.push_back(scopes_.back().get());
  }
  Scope* scope = free_scopes_.back();
  free_scopes_.pop_back();
  scope->parent = parent;
  return scope;
}

void Runtime::release_scope(Scope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

Scope* Runtime::capture_scope() {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent)
    scope->captured = true;
  return scope_;
}

void ScopeGuard::renew() {
  if (!scope_->captured) {
    scope_->variables.clear();
    return;
  }
  scope_ = runtime_.acquire_scope(scope_->parent);
  runtime_.scope_ = scope_;
}

void Runtime::write(std::string_view text) {
  if (text.size() > options_.limits.max_output_bytes - out_->size()) fail_output();
  step(text.size() / 64);
  out_->append(text);
}

void Runtime::print(const Value& value) {
  if (value.is_string()) {
    write(value.text());
  } else if (!value.is_undefined()) {
    write(to_text(*this, value));
  }
}

void Runtime::add_generation(std::string_view body) {
  const std::string_view fresh = std::string_view(result_.text).substr(counted_bytes_);
  counted_code_points_ += count_code_points(fresh);
  counted_bytes_ = result_.text.size();
  result_.generation_spans.emplace_back(counted_code_points_, counted_code_points_ + count_code_points(body));
}

RenderResult Runtime::take_result() {
  return std::move(result_);
}

namespace {

std::vector<Value> characters(Runtime& runtime, std::string_view text) {
  runtime.step(text.size());
  std::vector<Value> items;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    next_code_point(text, pos);
    items.push_back(Value::string(std::string(text.substr(start, pos - start))));
  }
  return items;
}

std::vector<Value> keys(const DictObject& dict) {
  std::vector<Value> items;
  items.reserve(dict.entries.size());
  for (const auto& entry : dict.entries) items.push_back(entry.first);
  return items;
}

std::vector<Value> rest(IteratorObject& iterator) {
  std::vector<Value> items(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next),
                           iterator.items.end());
  iterator.next = iterator.items.size();
  return items;
}

}  // namespace

Sequence::Sequence(Runtime& runtime, const Value& value) : source_(value) {
  switch (value.type()) {
    case Type::kUndefined:
      break;
    case Type::kString:
      own_ = characters(runtime, value.text());
      break;
    case Type::kDict:
      own_ = keys(value.as_dict());
      break;
    case Type::kIterator:
      own_ = rest(value.as<IteratorObject>());
      break;
    case Type::kList:
    case Type::kTuple:
    case Type::kRange:
    case Type::kView:
      items_ = &value.items();
      break;
    default:
      fail_type("'" + type_name(value) + "' object is not iterable");
  }
  runtime.step(items_->size());
}

Value call_value(Runtime& runtime, const Value& callee, CallArgs& args) {
  require_defined(callee);
  if (callee.type() != Type::kFunction) fail_type("'" + type_name(callee) + "' object is not callable");
  return callee.as<FunctionObject>().call(runtime, args);
}

}  // namespace apus::data::jinja
