#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "apus/data/jinja.h"
#include "data/jinja_ast.h"
#include "data/jinja_lexer.h"

namespace apus::data::jinja {

/// Builds the tree of a template by recursive descent; one method a rule of the grammar.
/// Statements are in jinja_parser.cpp, expressions in jinja_parser_expressions.cpp and
/// jinja_parser_postfix.cpp.
class Parser {
 public:
  Parser(std::vector<Token> tokens, const JinjaOptions& options);

  /// Throws SyntaxFailure.
  Program parse();

 private:
  /// Counts nesting while it lives.
  class Nest {
   public:
    explicit Nest(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > parser_.options_.max_nesting) parser_.fail_nesting();
    }
    ~Nest() { --parser_.nesting_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  const JinjaOptions& options_;
  size_t pos_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                         // for blocks around, up to the innermost macro
  int fors_ = 0;                          // for blocks around, macros or not
  std::vector<MacroDefinition*> macros_;  // around, innermost last
  /// A filter or test that does not exist, outside of conditions so far.
  struct UnknownName {
    int line;
    std::string message;
  };
  std::vector<UnknownName> unknown_names_;
  Program program_;

  // tokens
  const Token& current() const { return tokens_[pos_]; }
  const Token& ahead() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  const Token& advance();
  bool is_operator(std::string_view op) const;
  bool is_name(std::string_view name) const;
  bool is_any_name(std::initializer_list<std::string_view> names) const;
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_identifier();
  void expect_block_end();
  std::string describe_current() const;
  [[noreturn]] void fail_syntax(const std::string& reason) const;
  [[noreturn]] void fail_syntax_at(int line, const std::string& reason) const;
  [[noreturn]] void fail_unexpected() const;
  [[noreturn]] void fail_unsupported(const std::string& feature) const;
  [[noreturn]] void fail_nesting() const;

  // names
  Symbol intern(const std::string& name);
  ExprPtr name_expr(const std::string& name, int line);
  void note_macro_use(const std::string& name);

  // expressions
  template <typename Node>
  ExprPtr finish(std::unique_ptr<Node> node, std::initializer_list<const Expr*> children);
  void raise_height(Expr& node, const Expr* child);
  void raise_height(Expr& node, const CallSite& site);
  ExprPtr parse_expression();
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  enum class Filters { kAllowed, kNotHere };
  ExprPtr parse_unary(Filters filters);
  ExprPtr parse_primary();
  ExprPtr parse_name_or_constant();
  ExprPtr parse_string();
  /// What ends a tuple that has no parentheses, and which expressions are its elements.
  struct TupleRule {
    bool conditional = true;
    bool parenthesised = false;
    std::string_view end_name = {};
  };
  ExprPtr parse_tuple(const TupleRule& rule);
  bool at_tuple_end(const TupleRule& rule) const;
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr sequence(int line, std::vector<ExprPtr> items, bool is_tuple);
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_slice_rest(ExprPtr object, ExprPtr start, int line);
  ExprPtr parse_call(ExprPtr callee);
  CallSite parse_call_site();
  void parse_argument(CallSite& site, int line);
  ExprPtr parse_filter_chain(ExprPtr input);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  void parse_test_arguments(TestExpr& test);
  std::string parse_dotted_name();

  // statements
  Body parse_body(std::initializer_list<std::string_view> ends);
  Body parse_block_body(std::initializer_list<std::string_view> ends);
  Body parse_whole_block(std::string_view end);
  void parse_statement(Body& body);
  std::unique_ptr<Stmt> parse_simple_statement(const std::string& tag, int line);
  std::unique_ptr<Stmt> parse_for(int line);
  std::unique_ptr<Stmt> parse_if(int line);
  std::unique_ptr<Stmt> parse_set(int line);
  std::unique_ptr<Stmt> parse_macro(int line);
  std::unique_ptr<Stmt> parse_call_block(int line);
  std::unique_ptr<Stmt> parse_filter_block(int line);
  std::unique_ptr<Stmt> parse_with(int line);
  std::unique_ptr<Stmt> parse_generation(int line);
  std::unique_ptr<Stmt> parse_block(int line);
  std::unique_ptr<Stmt> parse_jump(int line, Flow flow);
  std::unique_ptr<Stmt> parse_load(int line);
  std::unique_ptr<Stmt> parse_autoescape(int line);
  void parse_print(Body& body);
  void parse_signature(MacroDefinition& macro);
  void parse_macro_body(MacroDefinition& macro, std::string_view end);
  Target parse_target(std::string_view end_name, bool with_attributes);
  Target parse_single_target(bool with_attributes);
  void reject_loop_target(const Target& target, int line) const;
};

template <typename Node>
ExprPtr Parser::finish(std::unique_ptr<Node> node, std::initializer_list<const Expr*> children) {
  for (const Expr* child : children) raise_height(*node, child);
  return node;
}

/// The value of a literal; nullptr for any other expression.
const Value* constant_of(const Expr& expr);

}  // namespace apus::data::jinja
