#include "data/jinja_parser.h"

// What follows a primary expression: attributes, subscripts, calls, filters and tests.
namespace apus::data::jinja {

ExprPtr Parser::parse_attribute(ExprPtr object) {
  const int line = advance().line;
  const Token& token = advance();
  const Expr* child = object.get();
  if (token.kind == TokenKind::kName) {
    auto node = std::make_unique<AttributeExpr>(line);
    node->object = std::move(object);
    node->name = Value::string(token.text);
    node->methods = find_methods(token.text);
    return finish(std::move(node), {child});
  }
  if (token.kind != TokenKind::kNumber || !token.number.is_int()) {
    fail_syntax_at(token.line, "expected name or number");
  }
  auto node = std::make_unique<ItemExpr>(line);
  node->object = std::move(object);
  node->key = std::make_unique<ConstExpr>(token.line, token.number);
  return finish(std::move(node), {child});
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const int line = advance().line;
  if (is_operator(":")) return parse_slice_rest(std::move(object), nullptr, line);
  std::vector<ExprPtr> keys;
  while (!is_operator("]")) {
    if (!keys.empty()) expect_operator(",");
    keys.push_back(parse_expression());
    if (is_operator(":")) {
      if (keys.size() > 1) fail_unsupported("a slice in a tuple of subscripts");
      return parse_slice_rest(std::move(object), std::move(keys.front()), line);
    }
  }
  expect_operator("]");
  auto node = std::make_unique<ItemExpr>(line);
  node->object = std::move(object);
  node->key = keys.size() == 1 ? std::move(keys.front()) : sequence(line, std::move(keys), true);
  const std::initializer_list<const Expr*> children = {node->object.get(), node->key.get()};
  return finish(std::move(node), children);
}

ExprPtr Parser::parse_slice_rest(ExprPtr object, ExprPtr start, int line) {
  auto node = std::make_unique<SliceExpr>(line);
  node->object = std::move(object);
  node->start = std::move(start);
  expect_operator(":");
  if (!is_operator(":") && !is_operator("]")) node->stop = parse_expression();
  if (skip_operator(":") && !is_operator("]")) node->step = parse_expression();
  if (is_operator(",")) fail_unsupported("a slice in a tuple of subscripts");
  expect_operator("]");
  const auto literal = [](const ExprPtr& part) { return !part || constant_of(*part) != nullptr; };
  node->is_constant =
      literal(node->object) && literal(node->start) && literal(node->stop) && literal(node->step);
  const std::initializer_list<const Expr*> children = {node->object.get(), node->start.get(),
                                                       node->stop.get(), node->step.get()};
  return finish(std::move(node), children);
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  auto node = std::make_unique<CallExpr>(current().line);
  node->callee = std::move(callee);
  node->args = parse_call_site();
  raise_height(*node, node->args);
  const Expr* child = node->callee.get();
  return finish(std::move(node), {child});
}

CallSite Parser::parse_call_site() {
  const int line = current().line;
  expect_operator("(");
  CallSite site;
  bool first = true;
  while (!is_operator(")")) {
    if (!first) expect_operator(",");
    first = false;
    if (is_operator(")")) break;
    parse_argument(site, line);
  }
  expect_operator(")");
  return site;
}

void Parser::parse_argument(CallSite& site, int line) {
  const auto require = [&](bool good) {
    if (!good) fail_syntax_at(line, "invalid syntax for function call expression");
  };
  if (skip_operator("*")) {
    require(!site.rest && !site.named_rest);
    site.rest = parse_expression();
  } else if (skip_operator("**")) {
    require(!site.named_rest);
    site.named_rest = parse_expression();
  } else if (current().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator &&
             ahead().text == "=") {
    require(!site.named_rest);
    std::string name = advance().text;
    advance();
    site.named.emplace_back(std::move(name), parse_expression());
  } else {
    require(!site.rest && !site.named_rest && site.named.empty());
    site.positional.push_back(parse_expression());
  }
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_identifier();
  while (skip_operator(".")) name += "." + expect_identifier();
  return name;
}

ExprPtr Parser::parse_filter_chain(ExprPtr input) {
  while (skip_operator("|")) input = parse_filter(std::move(input));
  return input;
}

ExprPtr Parser::parse_filter(ExprPtr input) {
  auto node = std::make_unique<FilterExpr>(current().line);
  node->name = parse_dotted_name();
  node->filter = find_filter(node->name);
  if (node->filter == nullptr) {
    if (is_unsupported_filter(node->name)) fail_unsupported("the filter '" + node->name + "'");
    unknown_names_.push_back({node->line, "No filter named '" + node->name + "'."});
  }
  if (is_operator("(")) node->args = parse_call_site();
  raise_height(*node, node->args);
  node->input = std::move(input);
  const Expr* child = node->input.get();
  return finish(std::move(node), {child});
}

ExprPtr Parser::parse_test(ExprPtr input) {
  const int line = advance().line;
  const bool negated = skip_name("not");
  auto node = std::make_unique<TestExpr>(line);
  node->name = parse_dotted_name();
  node->test = find_test(node->name);
  if (node->test == nullptr) unknown_names_.push_back({line, "No test named '" + node->name + "'."});
  node->input = std::move(input);
  parse_test_arguments(*node);
  raise_height(*node, node->args);
  const Expr* child = node->input.get();
  ExprPtr result = finish(std::move(node), {child});
  if (!negated) return result;
  auto inverse = std::make_unique<UnaryExpr>(line);
  inverse->operand = std::move(result);
  child = inverse->operand.get();
  return finish(std::move(inverse), {child});
}

void Parser::parse_test_arguments(TestExpr& test) {
  if (is_operator("(")) {
    test.args = parse_call_site();
    return;
  }
  const TokenKind kind = current().kind;
  const bool starts = kind == TokenKind::kName || kind == TokenKind::kString || kind == TokenKind::kNumber ||
                      is_operator("[") || is_operator("{");
  if (!starts || is_any_name({"else", "or", "and"})) return;
  if (is_name("is")) fail_syntax("You cannot chain multiple tests with is");
  const Nest nest(*this);
  test.args.positional.push_back(parse_postfix(parse_primary()));
}

}  // namespace apus::data::jinja
