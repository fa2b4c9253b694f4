#include "apus/data/jinja.h"

#include <nlohmann/json.hpp>

#include "data/jinja_ast.h"
#include "data/jinja_lexer.h"
#include "data/jinja_parser.h"
#include "data/jinja_runtime.h"

namespace apus::data {
namespace {

std::string full_message(JinjaErrorKind kind, const std::string& name, int line, const std::string& reason) {
  if (kind == JinjaErrorKind::kRaiseException) return reason;
  return name + (line > 0 ? ":" + std::to_string(line) : "") + ": " + reason;
}

}  // namespace

std::string_view jinja_error_kind_name(JinjaErrorKind kind) {
  switch (kind) {
    case JinjaErrorKind::kRaiseException:
      return "raise_exception";
    case JinjaErrorKind::kUndefined:
      return "undefined";
    case JinjaErrorKind::kType:
      return "type";
    case JinjaErrorKind::kSyntax:
      return "syntax";
    case JinjaErrorKind::kSecurity:
      return "security";
    case JinjaErrorKind::kLimit:
      return "limit";
    case JinjaErrorKind::kNotSupported:
      return "not_supported";
    case JinjaErrorKind::kOther:
      return "other";
  }
  return "other";
}

JinjaError::JinjaError(JinjaErrorKind kind, const std::string& template_name, int line,
                       const std::string& reason)
    : Error(full_message(kind, template_name, line, reason)), kind_(kind), line_(line), reason_(reason) {}

JinjaError::~JinjaError() = default;

struct JinjaTemplate::Parsed {
  std::string name;
  jinja::Program program;
};

JinjaTemplate::JinjaTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(const JinjaTemplate&) = default;
JinjaTemplate& JinjaTemplate::operator=(const JinjaTemplate&) = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;

JinjaTemplate JinjaTemplate::parse(std::string_view source, std::string name, const JinjaOptions& options) {
  try {
    jinja::Program program = jinja::Parser(jinja::tokenize(source, options), options).parse();
    return JinjaTemplate(std::make_shared<const Parsed>(Parsed{std::move(name), std::move(program)}));
  } catch (const jinja::SyntaxFailure& failure) {
    throw JinjaError(failure.kind(), name, failure.line(), failure.what());
  }
}

RenderResult JinjaTemplate::render(const nlohmann::ordered_json& context,
                                   const RenderOptions& options) const {
  APUS_CHECK(context.is_object(), ConfigError, parsed_->name,
             ": a template's context must be a JSON object, got ", context.type_name());
  int line = 0;
  try {
    jinja::Runtime runtime(parsed_->program, context, options);
    try {
      jinja::exec_body(runtime, parsed_->program.body);
    } catch (const jinja::Failure&) {
      line = runtime.line();
      throw;
    }
    return runtime.take_result();
  } catch (const jinja::Failure& failure) {
    throw JinjaError(failure.kind(), parsed_->name, line, failure.what());
  }
}

const std::string& JinjaTemplate::name() const {
  return parsed_->name;
}

bool JinjaTemplate::has_generation_blocks() const {
  return parsed_->program.has_generation;
}

bool JinjaTemplate::mentions(std::string_view variable) const {
  const auto found = parsed_->program.symbols.find(std::string(variable));
  return found != parsed_->program.symbols.end() && parsed_->program.is_read[found->second];
}

}  // namespace apus::data
