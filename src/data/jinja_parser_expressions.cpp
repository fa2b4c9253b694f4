#include <algorithm>

#include "data/jinja_globals.h"
#include "data/jinja_parser.h"

namespace apus::data::jinja {
namespace {

// Deeper trees are refused; long sums and chains of filters reach it, nesting is bounded before.
constexpr int kMaxHeight = 1000;

std::optional<CompareOp> compare_op(const Token& token) {
  if (token.kind != TokenKind::kOperator) return std::nullopt;
  if (token.text == "==") return CompareOp::kEqual;
  if (token.text == "!=") return CompareOp::kNotEqual;
  if (token.text == "<") return CompareOp::kLess;
  if (token.text == "<=") return CompareOp::kLessEqual;
  if (token.text == ">") return CompareOp::kGreater;
  if (token.text == ">=") return CompareOp::kGreaterEqual;
  return std::nullopt;
}

// The dict of an expression whose parts are all literals; undefined if it is to be built, or to fail, later.
Value constant_dict(const DictExpr& expr) {
  auto dict = std::make_shared<DictObject>();
  for (const auto& [key, value] : expr.entries) {
    const Value* k = constant_of(*key);
    const Value* v = constant_of(*value);
    if (k == nullptr || v == nullptr || k->type() == Type::kList || k->is_dict()) return {};
    try {
      dict->set(*k, *v);
    } catch (const Failure&) {
      return {};  // a tuple of lists as key, or too deep: reported when it is evaluated
    }
  }
  return Value::dict(std::move(dict));
}

}  // namespace

const Value* constant_of(const Expr& expr) {
  const auto* constant = dynamic_cast<const ConstExpr*>(&expr);
  return constant == nullptr ? nullptr : &constant->value;
}

void Parser::raise_height(Expr& node, const Expr* child) {
  if (child == nullptr) return;
  node.height = std::max(node.height, child->height + 1);
  if (node.height > kMaxHeight) {
    throw SyntaxFailure(JinjaErrorKind::kLimit, node.line,
                        "an expression chains more than " + std::to_string(kMaxHeight) + " operations");
  }
}

void Parser::raise_height(Expr& node, const CallSite& site) {
  for (const ExprPtr& arg : site.positional) raise_height(node, arg.get());
  for (const auto& arg : site.named) raise_height(node, arg.second.get());
  raise_height(node, site.rest.get());
  raise_height(node, site.named_rest.get());
}

ExprPtr Parser::parse_expression() {
  return parse_conditional();
}

ExprPtr Parser::parse_conditional() {
  const Nest nest(*this);
  const size_t known = unknown_names_.size();
  ExprPtr then = parse_or();
  while (is_name("if")) {
    auto node = std::make_unique<ConditionalExpr>(advance().line);
    node->test = parse_or();
    if (skip_name("else")) node->otherwise = parse_conditional();
    node->then = std::move(then);
    const std::initializer_list<const Expr*> children = {node->then.get(), node->test.get(),
                                                         node->otherwise.get()};
    then = finish(std::move(node), children);
    unknown_names_.resize(known);  // an unknown filter in here is an error only once it is reached
  }
  return then;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (is_name("or")) {
    auto node = std::make_unique<LogicExpr>(advance().line);
    node->left = std::move(left);
    node->right = parse_and();
    const std::initializer_list<const Expr*> children = {node->left.get(), node->right.get()};
    left = finish(std::move(node), children);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (is_name("and")) {
    auto node = std::make_unique<LogicExpr>(advance().line);
    node->is_and = true;
    node->left = std::move(left);
    node->right = parse_not();
    const std::initializer_list<const Expr*> children = {node->left.get(), node->right.get()};
    left = finish(std::move(node), children);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nest nest(*this);
  auto node = std::make_unique<UnaryExpr>(advance().line);
  node->operand = parse_not();
  const Expr* child = node->operand.get();
  return finish(std::move(node), {child});
}

ExprPtr Parser::parse_compare() {
  ExprPtr first = parse_sum();
  auto node = std::make_unique<CompareExpr>(first->line);
  while (true) {
    CompareOp op = CompareOp::kIn;
    if (const auto symbol = compare_op(current())) {
      op = *symbol;
    } else if (is_name("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      advance();
      op = CompareOp::kNotIn;
    } else if (!is_name("in")) {
      break;
    }
    advance();
    node->rest.emplace_back(op, parse_sum());
    raise_height(*node, node->rest.back().second.get());
  }
  if (node->rest.empty()) return first;
  node->first = std::move(first);
  const Expr* child = node->first.get();
  return finish(std::move(node), {child});
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_operator("+") || is_operator("-")) {
    const Token& op = advance();
    auto node = std::make_unique<BinaryExpr>(op.line);
    node->op = op.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    node->left = std::move(left);
    node->right = parse_concat();
    const std::initializer_list<const Expr*> children = {node->left.get(), node->right.get()};
    left = finish(std::move(node), children);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!is_operator("~")) return first;
  auto node = std::make_unique<ConcatExpr>(first->line);
  node->parts.push_back(std::move(first));
  while (skip_operator("~")) node->parts.push_back(parse_product());
  for (const ExprPtr& part : node->parts) raise_height(*node, part.get());
  return node;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token& op = advance();
    auto node = std::make_unique<BinaryExpr>(op.line);
    node->op = op.text == "*"    ? BinaryOp::kMultiply
               : op.text == "/"  ? BinaryOp::kDivide
               : op.text == "//" ? BinaryOp::kFloorDivide
                                 : BinaryOp::kModulo;
    node->left = std::move(left);
    node->right = parse_power();
    const std::initializer_list<const Expr*> children = {node->left.get(), node->right.get()};
    left = finish(std::move(node), children);
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(Filters::kAllowed);
  while (is_operator("**")) {
    auto node = std::make_unique<BinaryExpr>(advance().line);
    node->op = BinaryOp::kPower;
    node->left = std::move(left);
    node->right = parse_unary(Filters::kAllowed);
    const std::initializer_list<const Expr*> children = {node->left.get(), node->right.get()};
    left = finish(std::move(node), children);
  }
  return left;
}

ExprPtr Parser::parse_unary(Filters filters) {
  ExprPtr node;
  if (is_operator("-") || is_operator("+")) {
    const Nest nest(*this);
    const Token& op = advance();
    auto unary = std::make_unique<UnaryExpr>(op.line);
    unary->op = op.text == "-" ? UnaryOp::kMinus : UnaryOp::kPlus;
    unary->operand = parse_unary(Filters::kNotHere);
    const Expr* child = unary->operand.get();
    node = finish(std::move(unary), {child});
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return filters == Filters::kAllowed ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name_or_constant();
    case TokenKind::kString:
      return parse_string();
    case TokenKind::kNumber:
      advance();
      return std::make_unique<ConstExpr>(token.line, token.number);
    default:
      break;
  }
  if (is_operator("(")) {
    advance();
    ExprPtr tuple = parse_tuple({.parenthesised = true});
    expect_operator(")");
    return tuple;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  fail_unexpected();
}

ExprPtr Parser::parse_name_or_constant() {
  const Token& token = advance();
  const std::string& text = token.text;
  if (text == "true" || text == "True") return std::make_unique<ConstExpr>(token.line, Value::boolean(true));
  if (text == "false" || text == "False")
    return std::make_unique<ConstExpr>(token.line, Value::boolean(false));
  if (text == "none" || text == "None") return std::make_unique<ConstExpr>(token.line, Value::none());
  return name_expr(text, token.line);
}

ExprPtr Parser::parse_string() {
  const int line = current().line;
  std::string text;
  while (current().kind == TokenKind::kString) text += advance().text;
  return std::make_unique<ConstExpr>(line, Value::string(std::move(text)));
}

bool Parser::at_tuple_end(const TupleRule& rule) const {
  const TokenKind kind = current().kind;
  if (kind == TokenKind::kPrintEnd || kind == TokenKind::kBlockEnd || is_operator(")")) return true;
  return !rule.end_name.empty() && is_name(rule.end_name);
}

ExprPtr Parser::parse_tuple(const TupleRule& rule) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!at_tuple_end(rule)) {
    items.push_back(rule.conditional ? parse_expression() : parse_or());
    if (!is_operator(",")) break;
    advance();
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !rule.parenthesised) {
    fail_syntax("Expected an expression, got '" + describe_current() + "'");
  }
  return sequence(line, std::move(items), true);
}

ExprPtr Parser::sequence(int line, std::vector<ExprPtr> items, bool is_tuple) {
  const bool constant =
      std::all_of(items.begin(), items.end(), [](const ExprPtr& i) { return constant_of(*i); });
  if (constant) {
    std::vector<Value> values;
    for (const ExprPtr& item : items) values.push_back(*constant_of(*item));
    try {
      return std::make_unique<ConstExpr>(
          line, is_tuple ? Value::tuple(std::move(values)) : Value::list(std::move(values)));
    } catch (const Failure& failure) {
      throw SyntaxFailure(failure.kind(), line, failure.what());
    }
  }
  auto node = std::make_unique<SequenceExpr>(line);
  node->is_tuple = is_tuple;
  node->items = std::move(items);
  for (const ExprPtr& item : node->items) raise_height(*node, item.get());
  return node;
}

ExprPtr Parser::parse_list() {
  const int line = advance().line;
  std::vector<ExprPtr> items;
  while (!is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (is_operator("]")) break;
    items.push_back(parse_expression());
  }
  expect_operator("]");
  return sequence(line, std::move(items), false);
}

ExprPtr Parser::parse_dict() {
  auto node = std::make_unique<DictExpr>(advance().line);
  while (!is_operator("}")) {
    if (!node->entries.empty()) expect_operator(",");
    if (is_operator("}")) break;
    ExprPtr key = parse_expression();
    expect_operator(":");
    ExprPtr value = parse_expression();
    raise_height(*node, key.get());
    raise_height(*node, value.get());
    node->entries.emplace_back(std::move(key), std::move(value));
  }
  expect_operator("}");
  if (const Value constant = constant_dict(*node); constant.is_dict()) {
    return std::make_unique<ConstExpr>(node->line, constant);
  }
  return node;
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (is_operator(".")) {
      node = parse_attribute(std::move(node));
    } else if (is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr node) {
  while (true) {
    if (is_operator("|")) {
      node = parse_filter_chain(std::move(node));
    } else if (is_name("is")) {
      node = parse_test(std::move(node));
    } else if (is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::name_expr(const std::string& name, int line) {
  auto node = std::make_unique<NameExpr>(line);
  node->symbol = intern(name);
  node->name = Value::string(name);
  node->global = find_global(name);
  program_.is_read[node->symbol] = true;
  note_macro_use(name);
  return node;
}

}  // namespace apus::data::jinja
