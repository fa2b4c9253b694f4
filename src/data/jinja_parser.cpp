#include "data/jinja_parser.h"

#include <algorithm>

namespace apus::data::jinja {
namespace {

// The variable that a filter chain over a captured block reads; no template can spell it.
constexpr const char* kCapturedName = "<block>";

}  // namespace

Parser::Parser(std::vector<Token> tokens, const JinjaOptions& options)
    : tokens_(std::move(tokens)), options_(options) {}

Program Parser::parse() {
  program_.body = parse_body({});
  if (!unknown_names_.empty()) fail_syntax_at(unknown_names_.front().line, unknown_names_.front().message);
  return std::move(program_);
}

const Token& Parser::advance() {
  const Token& token = tokens_[pos_];
  if (token.kind != TokenKind::kEnd) ++pos_;
  return token;
}

bool Parser::is_operator(std::string_view op) const {
  return current().kind == TokenKind::kOperator && current().text == op;
}

bool Parser::is_name(std::string_view name) const {
  return current().kind == TokenKind::kName && current().text == name;
}

bool Parser::is_any_name(std::initializer_list<std::string_view> names) const {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return is_name(name); });
}

bool Parser::skip_operator(std::string_view op) {
  const bool there = is_operator(op);
  if (there) advance();
  return there;
}

bool Parser::skip_name(std::string_view name) {
  const bool there = is_name(name);
  if (there) advance();
  return there;
}

void Parser::expect_operator(std::string_view op) {
  if (skip_operator(op)) return;
  fail_syntax("expected token '" + std::string(op) + "', got '" + describe_current() + "'");
}

void Parser::expect_name(std::string_view name) {
  if (skip_name(name)) return;
  fail_syntax("expected token '" + std::string(name) + "', got '" + describe_current() + "'");
}

std::string Parser::expect_identifier() {
  if (current().kind == TokenKind::kName) return advance().text;
  fail_syntax("expected token 'name', got '" + describe_current() + "'");
}

void Parser::expect_block_end() {
  if (current().kind != TokenKind::kBlockEnd) {
    fail_syntax("expected token 'end of statement block', got '" + describe_current() + "'");
  }
  advance();
}

std::string Parser::describe_current() const {
  switch (current().kind) {
    case TokenKind::kPrintBegin:
      return "begin of print statement";
    case TokenKind::kPrintEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kNumber:
      return "number";
    case TokenKind::kData:
      return "template data";
    default:
      return current().text;
  }
}

void Parser::fail_syntax(const std::string& reason) const {
  fail_syntax_at(current().line, reason);
}

void Parser::fail_syntax_at(int line, const std::string& reason) const {
  throw SyntaxFailure(JinjaErrorKind::kSyntax, line, reason);
}

void Parser::fail_unexpected() const {
  fail_syntax("unexpected '" + describe_current() + "'");
}

void Parser::fail_unsupported(const std::string& feature) const {
  throw SyntaxFailure(JinjaErrorKind::kNotSupported, current().line, feature + " is not supported");
}

void Parser::fail_nesting() const {
  throw SyntaxFailure(JinjaErrorKind::kLimit, current().line,
                      "blocks or expressions are nested deeper than " + std::to_string(options_.max_nesting) +
                          " (JinjaOptions::max_nesting)");
}

Symbol Parser::intern(const std::string& name) {
  const auto [at, is_new] = program_.symbols.try_emplace(name, static_cast<Symbol>(program_.names.size()));
  if (is_new) {
    program_.names.push_back(name);
    program_.is_read.push_back(false);
  }
  return at->second;
}

void Parser::note_macro_use(const std::string& name) {
  for (MacroDefinition* macro : macros_) {
    macro->uses_caller = macro->uses_caller || name == "caller";
    macro->uses_varargs = macro->uses_varargs || name == "varargs";
    macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
  }
}

// Statements up to one of the end tags, which is then current; up to the end of the text if there are none.
Body Parser::parse_body(std::initializer_list<std::string_view> ends) {
  const Nest nest(*this);
  Body body;
  while (current().kind != TokenKind::kEnd) {
    const Token& token = advance();
    if (token.kind == TokenKind::kData) {
      body.push_back(std::make_unique<TextStmt>(token.line, token.text));
    } else if (token.kind == TokenKind::kPrintBegin) {
      auto print = std::make_unique<PrintStmt>(token.line);
      print->expr = parse_tuple({});
      if (current().kind != TokenKind::kPrintEnd) {
        fail_syntax("expected token 'end of print statement', got '" + describe_current() + "'");
      }
      advance();
      body.push_back(std::move(print));
    } else {
      if (is_any_name(ends)) return body;
      parse_statement(body);
    }
  }
  if (ends.size() > 0)
    fail_syntax("Unexpected end of template: expected '" + std::string(*ends.begin()) + "'");
  return body;
}

// The end of the opening tag, and the body up to an end tag.
Body Parser::parse_block_body(std::initializer_list<std::string_view> ends) {
  skip_operator(":");
  expect_block_end();
  return parse_body(ends);
}

// The same with the name of the end tag taken off.
Body Parser::parse_whole_block(std::string_view end) {
  Body body = parse_block_body({end});
  advance();
  return body;
}

void Parser::parse_statement(Body& body) {
  if (current().kind != TokenKind::kName) fail_syntax("tag name expected");
  const Token& tag = advance();
  if (tag.text == "print") {
    parse_print(body);
  } else {
    body.push_back(parse_simple_statement(tag.text, tag.line));
  }
  expect_block_end();
}

std::unique_ptr<Stmt> Parser::parse_simple_statement(const std::string& tag, int line) {
  if (tag == "for") return parse_for(line);
  if (tag == "if") return parse_if(line);
  if (tag == "set") return parse_set(line);
  if (tag == "macro") return parse_macro(line);
  if (tag == "call") return parse_call_block(line);
  if (tag == "filter") return parse_filter_block(line);
  if (tag == "with") return parse_with(line);
  if (tag == "generation") return parse_generation(line);
  if (tag == "block") return parse_block(line);
  if (tag == "break") return parse_jump(line, Flow::kBreak);
  if (tag == "continue") return parse_jump(line, Flow::kContinue);
  if (tag == "autoescape") return parse_autoescape(line);
  if (tag == "include" || tag == "import" || tag == "extends" || tag == "from") return parse_load(line);
  fail_syntax_at(line, "Encountered unknown tag '" + tag + "'.");
}

std::unique_ptr<Stmt> Parser::parse_for(int line) {
  auto node = std::make_unique<ForStmt>(line);
  ++fors_;
  node->target = parse_target("in", false);
  reject_loop_target(node->target, line);
  expect_name("in");
  node->iterable = parse_tuple({.conditional = false, .end_name = "recursive"});
  if (skip_name("if")) node->filter = parse_expression();
  node->recursive = skip_name("recursive");
  node->loop_symbol = intern("loop");
  ++loops_;
  node->body = parse_block_body({"endfor", "else"});
  --loops_;
  if (advance().text == "else") node->otherwise = parse_whole_block("endfor");
  --fors_;
  return node;
}

void Parser::reject_loop_target(const Target& target, int line) const {
  if (fors_ > 0 && target.kind == Target::Kind::kName && target.name.text() == "loop") {
    fail_syntax_at(line, "Can't assign to special loop variable in for-loop target");
  }
  for (const Target& part : target.parts) reject_loop_target(part, line);
}

std::unique_ptr<Stmt> Parser::parse_if(int line) {
  auto node = std::make_unique<IfStmt>(line);
  const size_t known = unknown_names_.size();
  while (true) {
    ExprPtr test = parse_tuple({.conditional = false});
    Body body = parse_block_body({"elif", "else", "endif"});
    node->branches.emplace_back(std::move(test), std::move(body));
    const std::string& end = advance().text;
    if (end == "elif") continue;
    if (end == "else") node->otherwise = parse_whole_block("endif");
    unknown_names_.resize(known);  // unknown filters in a branch are errors only once they are reached
    return node;
  }
}

std::unique_ptr<Stmt> Parser::parse_set(int line) {
  Target target = parse_target({}, true);
  reject_loop_target(target, line);
  if (skip_operator("=")) {
    auto node = std::make_unique<SetStmt>(line);
    node->target = std::move(target);
    node->value = parse_tuple({});
    return node;
  }
  auto node = std::make_unique<CaptureStmt>(line);
  node->target = std::move(target);
  node->text_symbol = intern(kCapturedName);
  if (is_operator("|")) node->filters = parse_filter_chain(name_expr(kCapturedName, line));
  node->body = parse_whole_block("endset");
  return node;
}

std::unique_ptr<Stmt> Parser::parse_filter_block(int line) {
  auto node = std::make_unique<CaptureStmt>(line);
  node->text_symbol = intern(kCapturedName);
  node->filters = parse_filter_chain(parse_filter(name_expr(kCapturedName, line)));
  node->body = parse_whole_block("endfilter");
  return node;
}

void Parser::parse_signature(MacroDefinition& macro) {
  expect_operator("(");
  while (!is_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    const std::string name = expect_identifier();
    MacroParameter parameter = {intern(name), Value::string(name), nullptr};
    if (skip_operator("=")) {
      parameter.otherwise = parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().otherwise) {
      fail_syntax("non-default argument follows default argument");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect_operator(")");
}

void Parser::parse_macro_body(MacroDefinition& macro, std::string_view end) {
  macro.caller_symbol = intern("caller");
  macro.varargs_symbol = intern("varargs");
  macro.kwargs_symbol = intern("kwargs");
  const int loops = std::exchange(loops_, 0);  // break and continue do not reach out of a macro
  macros_.push_back(&macro);
  macro.body = parse_whole_block(end);
  macros_.pop_back();
  loops_ = loops;
  for (const MacroParameter& parameter : macro.parameters) {
    const std::string& name = parameter.name.text();
    if (name == "caller" && macro.uses_caller && !parameter.otherwise) {
      fail_syntax(
          "When defining macros or call blocks the special \"caller\" argument must be omitted or be "
          "given a default.");
    }
    if (name == "varargs") macro.uses_varargs = false;
    if (name == "kwargs") macro.uses_kwargs = false;
  }
}

std::unique_ptr<Stmt> Parser::parse_macro(int line) {
  auto node = std::make_unique<MacroStmt>(line);
  node->macro.name = expect_identifier();
  node->symbol = intern(node->macro.name);
  parse_signature(node->macro);
  parse_macro_body(node->macro, "endmacro");
  return node;
}

std::unique_ptr<Stmt> Parser::parse_call_block(int line) {
  auto node = std::make_unique<CallBlockStmt>(line);
  if (is_operator("(")) parse_signature(node->caller);
  ExprPtr call = parse_expression();
  if (dynamic_cast<CallExpr*>(call.get()) == nullptr) fail_syntax_at(line, "expected call");
  node->call.reset(static_cast<CallExpr*>(call.release()));
  parse_macro_body(node->caller, "endcall");
  return node;
}

std::unique_ptr<Stmt> Parser::parse_with(int line) {
  auto node = std::make_unique<WithStmt>(line);
  while (current().kind != TokenKind::kBlockEnd && !is_operator(":")) {
    if (!node->bindings.empty()) expect_operator(",");
    Target target = parse_target({}, false);
    expect_operator("=");
    node->bindings.emplace_back(std::move(target), parse_expression());
  }
  node->body = parse_whole_block("endwith");
  return node;
}

std::unique_ptr<Stmt> Parser::parse_generation(int line) {
  auto node = std::make_unique<GenerationStmt>(line);
  program_.has_generation = true;
  const int loops = std::exchange(loops_, 0);
  node->body = parse_whole_block("endgeneration");
  loops_ = loops;
  return node;
}

std::unique_ptr<Stmt> Parser::parse_block(int line) {
  auto node = std::make_unique<BlockStmt>(line);
  const std::string name = expect_identifier();
  node->scoped = skip_name("scoped");
  if (is_name("required")) fail_unsupported("a required block");
  const int loops = std::exchange(loops_, 0);
  node->body = parse_whole_block("endblock");
  loops_ = loops;
  skip_name(name);
  return node;
}

std::unique_ptr<Stmt> Parser::parse_jump(int line, Flow flow) {
  if (loops_ == 0) {
    // Python refuses these, not Jinja's parser: hence the kind.
    throw SyntaxFailure(JinjaErrorKind::kOther, line,
                        flow == Flow::kBreak ? "SyntaxError: 'break' outside loop"
                                             : "SyntaxError: 'continue' not properly in loop");
  }
  return std::make_unique<JumpStmt>(line, flow);
}

std::unique_ptr<Stmt> Parser::parse_load(int line) {
  while (current().kind != TokenKind::kBlockEnd && current().kind != TokenKind::kEnd) advance();
  return std::make_unique<LoadStmt>(line);
}

std::unique_ptr<Stmt> Parser::parse_autoescape(int line) {
  if (!is_any_name({"false", "False"})) fail_unsupported("autoescape");
  advance();
  auto node = std::make_unique<WithStmt>(line);  // escaping is off as it is: only the scope remains
  node->body = parse_whole_block("endautoescape");
  return node;
}

void Parser::parse_print(Body& body) {
  bool first = true;
  while (current().kind != TokenKind::kBlockEnd) {
    if (!first) expect_operator(",");
    first = false;
    auto print = std::make_unique<PrintStmt>(current().line);
    print->expr = parse_expression();
    body.push_back(std::move(print));
  }
}

Target Parser::parse_single_target(bool with_attributes) {
  if (is_operator("(")) {
    const Nest nest(*this);
    advance();
    Target target = parse_target(")", with_attributes);
    expect_operator(")");
    return target;
  }
  const std::string name = expect_identifier();
  if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
      name == "None") {
    fail_syntax("can't assign to 'const'");
  }
  Target target;
  target.symbol = intern(name);
  target.name = Value::string(name);
  if (with_attributes && skip_operator(".")) {
    target.kind = Target::Kind::kAttribute;
    target.attribute = expect_identifier();
  }
  return target;
}

Target Parser::parse_target(std::string_view end_name, bool with_attributes) {
  const TokenKind kind = current().kind;
  if (kind == TokenKind::kBlockEnd || is_name(end_name)) {
    fail_syntax("Expected an expression, got '" + describe_current() + "'");
  }
  Target first = parse_single_target(with_attributes);
  if (!is_operator(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (is_operator(")") || current().kind == TokenKind::kBlockEnd) break;
    tuple.parts.push_back(parse_single_target(with_attributes));
  }
  return tuple;
}

}  // namespace apus::data::jinja
