#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/jinja_filters.h"
#include "data/jinja_methods.h"
#include "data/jinja_operators.h"
#include "data/jinja_runtime.h"
#include "data/jinja_tests.h"

/// The parsed form of a template. Nodes are immutable and shared by all renderings.
namespace apus::data::jinja {

/// An expression. `height` counts the nodes on the longest path down and is bounded by the parser.
struct Expr {
  explicit Expr(int l) : line(l) {}
  Expr(const Expr&) = delete;
  Expr& operator=(const Expr&) = delete;
  virtual ~Expr() = default;
  virtual Value eval(Runtime& runtime) const = 0;
  int line;
  int height = 1;
};
using ExprPtr = std::unique_ptr<Expr>;

/// How a statement ended.
enum class Flow { kNext, kBreak, kContinue };

/// A statement.
struct Stmt {
  explicit Stmt(int l) : line(l) {}
  Stmt(const Stmt&) = delete;
  Stmt& operator=(const Stmt&) = delete;
  virtual ~Stmt() = default;
  virtual Flow exec(Runtime& runtime) const = 0;
  int line;
};
using Body = std::vector<std::unique_ptr<Stmt>>;
Flow exec_body(Runtime& runtime, const Body& body);

/// The arguments at a call site.
struct CallSite {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr rest;        // *rest
  ExprPtr named_rest;  // **named_rest
  CallArgs eval(Runtime& runtime) const;
};

struct ConstExpr final : Expr {
  ConstExpr(int l, Value v) : Expr(l), value(std::move(v)) {}
  Value eval(Runtime& runtime) const override;
  Value value;
};

struct NameExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  Symbol symbol = 0;
  Value name;
  Value global;  // the environment's value of that name, or undefined
};

struct SequenceExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
};

struct DictExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};

enum class UnaryOp { kNot, kMinus, kPlus };
struct UnaryExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  UnaryOp op = UnaryOp::kNot;
  ExprPtr operand;
};

struct LogicExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  bool is_and = false;
  ExprPtr left, right;
};

struct BinaryExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  BinaryOp op = BinaryOp::kAdd;
  ExprPtr left, right;
};

struct ConcatExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  std::vector<ExprPtr> parts;
};

struct CompareExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};

struct ConditionalExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  ExprPtr test, then, otherwise;  // otherwise may be null
};

struct AttributeExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  ExprPtr object;
  Value name;
  MethodSet methods;
};

struct ItemExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  ExprPtr object, key;
};

struct SliceExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  ExprPtr object;
  ExprPtr start, stop, step;  // each may be null
  bool is_constant = false;   // all parts are literals: what cannot be sliced is undefined, not an error
};

struct CallExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  /// Calls with `caller` as one more named argument, as the call block does.
  Value call(Runtime& runtime, std::optional<Value> caller) const;
  ExprPtr callee;
  CallSite args;
};

struct FilterExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  ExprPtr input;
  std::string name;
  FilterFunction filter = nullptr;  // null: unknown, an error once it is reached
  CallSite args;
};

struct TestExpr final : Expr {
  using Expr::Expr;
  Value eval(Runtime& runtime) const override;
  ExprPtr input;
  std::string name;
  TestFunction test = nullptr;
  CallSite args;
};

/// What a set or for assigns to.
struct Target {
  enum class Kind { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  Symbol symbol = 0;
  Value name;
  std::string attribute;
  std::vector<Target> parts;
  void assign(Runtime& runtime, Value value) const;
};

struct TextStmt final : Stmt {
  TextStmt(int l, std::string t) : Stmt(l), text(std::move(t)) {}
  Flow exec(Runtime& runtime) const override;
  std::string text;
};

struct PrintStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  ExprPtr expr;
};

struct IfStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};

struct ForStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  Flow run(Runtime& runtime, const Value& iterable, int depth0) const;
  Target target;
  ExprPtr iterable;
  ExprPtr filter;  // may be null
  bool recursive = false;
  Symbol loop_symbol = 0;
  Body body, otherwise;

 private:
  std::vector<Value> filtered(Runtime& runtime, const Value& source) const;
};

struct SetStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  Target target;
  ExprPtr value;
};

/// A block whose text goes through filters and then into a variable (set) or to the output (filter).
struct CaptureStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  std::optional<Target> target;
  Symbol text_symbol = 0;  // what the filters read
  ExprPtr filters;         // may be null
  Body body;
};

struct MacroParameter {
  Symbol symbol;
  Value name;
  ExprPtr otherwise;  // may be null
};

/// A macro, or the block of a call.
struct MacroDefinition {
  std::string name;  // empty for a call block
  std::vector<MacroParameter> parameters;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  Symbol caller_symbol = 0, varargs_symbol = 0, kwargs_symbol = 0;
};

struct MacroStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  Symbol symbol = 0;
  MacroDefinition macro;
};

struct CallBlockStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  std::unique_ptr<CallExpr> call;
  MacroDefinition caller;
};

struct WithStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Body body;
};

struct GenerationStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  Body body;
};

/// {% block %}: without inheritance its body, which sees the variables of the top level (or all, if scoped).
struct BlockStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
  bool scoped = false;
  Body body;
};

struct JumpStmt final : Stmt {
  JumpStmt(int l, Flow f) : Stmt(l), flow(f) {}
  Flow exec(Runtime& runtime) const override;
  Flow flow;
};

/// include, import, extends: there is no loader.
struct LoadStmt final : Stmt {
  using Stmt::Stmt;
  Flow exec(Runtime& runtime) const override;
};

/// A parsed template.
struct Program {
  Body body;
  std::vector<std::string> names;  // by symbol
  std::unordered_map<std::string, Symbol> symbols;
  std::vector<bool> is_read;  // by symbol: some expression reads a variable of that name
  bool has_generation = false;
};

}  // namespace apus::data::jinja
