#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apus/data/jinja.h"
#include "data/jinja_objects.h"
#include "data/jinja_value.h"

namespace apus::data::jinja {

struct Expr;
struct Program;
using Symbol = uint32_t;

/// The variables of one block. Looking up goes from the innermost scope outwards.
struct Scope {
  Scope* parent = nullptr;
  bool captured = false;  // a macro or call block refers to it: it lives until the rendering ends
  std::vector<std::pair<Symbol, Value>> variables;

  const Value* find(Symbol symbol) const;
  void set(Symbol symbol, Value value);
};

/// The state of one rendering: limits, variables and output.
class Runtime {
 public:
  Runtime(const Program& program, const nlohmann::ordered_json& context, const RenderOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Counts work. Throws kLimit beyond max_steps.
  void step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > options_.limits.max_steps) [[unlikely]]
      fail_steps();
  }
  /// Must be called before a text of so many bytes is built. Throws kLimit beyond max_output_bytes.
  void grow(size_t bytes) {
    step(bytes / 64);
    require_size(bytes);
  }
  /// The check of grow alone, for a text that is built piece by piece.
  void require_size(size_t bytes) const {
    if (bytes > options_.limits.max_output_bytes) [[unlikely]]
      fail_output();
  }
  /// grow for `count` times `bytes`, without overflow.
  void grow_times(int64_t count, size_t bytes);

  /// Evaluates with the depth counted.
  Value eval(const Expr& expr);

  const Program& program() const { return program_; }
  const RenderOptions& options() const { return options_; }
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

  Value lookup(Symbol symbol, const Value& name, const Value& global) const;
  void assign(Symbol symbol, Value value) { scope_->set(symbol, std::move(value)); }
  Scope* scope() { return scope_; }
  Scope* root() { return root_; }
  /// Keeps the current scope and those around it until the end.
  Scope* capture_scope();

  void write(std::string_view text);
  /// Prints a value as {{ }} does.
  void print(const Value& value);

  /// Notes a namespace, so that cycles through it can be broken at the end.
  void adopt(const std::shared_ptr<NamespaceObject>& object) { namespaces_.push_back(object); }
  /// Notes that the generated text `body` comes next at the top level.
  void add_generation(std::string_view body);
  RenderResult take_result();

 private:
  friend class ScopeGuard;
  friend class DepthGuard;
  friend class CaptureGuard;

  const Program& program_;
  const RenderOptions& options_;
  uint64_t steps_ = 0;
  int depth_ = 0;
  int line_ = 0;
  std::vector<Value> context_;
  std::vector<bool> in_context_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope* scope_ = nullptr;
  Scope* root_ = nullptr;
  RenderResult result_;
  std::string* out_ = &result_.text;
  size_t counted_bytes_ = 0;  // of result_.text, for the offsets of generation spans
  size_t counted_code_points_ = 0;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;

  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_output() const;
  [[noreturn]] void fail_depth() const;
  Scope* acquire_scope(Scope* parent);
  void release_scope(Scope* scope);
};

/// Counts one level of nesting while it lives.
class DepthGuard {
 public:
  explicit DepthGuard(Runtime& runtime) : runtime_(runtime) {
    if (++runtime_.depth_ > runtime_.options_.limits.max_depth) [[unlikely]] {
      --runtime_.depth_;
      runtime_.fail_depth();
    }
  }
  ~DepthGuard() { --runtime_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Runtime& runtime_;
};

/// Makes a fresh scope current while it lives.
class ScopeGuard {
 public:
  /// Inside the current scope.
  explicit ScopeGuard(Runtime& runtime) : ScopeGuard(runtime, runtime.scope_) {}
  ScopeGuard(Runtime& runtime, Scope* parent)
      : runtime_(runtime), outer_(runtime.scope_), scope_(runtime.acquire_scope(parent)) {
    runtime_.scope_ = scope_;
  }
  ~ScopeGuard() {
    runtime_.scope_ = outer_;
    runtime_.release_scope(scope_);
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

  /// Starts over, as each iteration of a loop does.
  void renew();

 private:
  Runtime& runtime_;
  Scope* outer_;
  Scope* scope_;
};

/// Sends the output to a text of its own while it lives.
class CaptureGuard {
 public:
  explicit CaptureGuard(Runtime& runtime) : runtime_(runtime), outer_(runtime.out_) {
    runtime_.out_ = &text_;
  }
  ~CaptureGuard() { runtime_.out_ = outer_; }
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

  std::string take() { return std::move(text_); }

 private:
  Runtime& runtime_;
  std::string* outer_;
  std::string text_;
};

/// What a value gives when iterated; keeps it alive. An iterator is used up.
class Sequence {
 public:
  /// Throws type for what cannot be iterated.
  Sequence(Runtime& runtime, const Value& value);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  size_t size() const { return items_->size(); }
  const Value& operator[](size_t index) const { return (*items_)[index]; }
  auto begin() const { return items_->begin(); }
  auto end() const { return items_->end(); }
  std::vector<Value> copy() const { return *items_; }

 private:
  Value source_;
  std::vector<Value> own_;
  const std::vector<Value>* items_ = &own_;
};

/// Calls anything callable. Throws type, or undefined for an undefined value.
Value call_value(Runtime& runtime, const Value& callee, CallArgs& args);

}  // namespace apus::data::jinja
