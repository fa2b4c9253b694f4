#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apus/data/jinja.h"
#include "data/jinja_value.h"

namespace apus::data::jinja {

enum class TokenKind {
  kData,
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kNumber,
  kOperator,
  kEnd,
};

/// One piece of a template.
struct Token {
  TokenKind kind;
  int line;
  std::string text;  // of data, names and operators; the content of strings
  Value number;      // of kNumber
};

/// A syntax error with its line.
class SyntaxFailure final : public std::runtime_error {
 public:
  SyntaxFailure(JinjaErrorKind kind, int line, const std::string& reason)
      : std::runtime_error(reason), kind_(kind), line_(line) {}
  JinjaErrorKind kind() const { return kind_; }
  int line() const { return line_; }

 private:
  JinjaErrorKind kind_;
  int line_;
};

/// Splits template text into tokens; white space control, comments and raw blocks are dealt with here.
/// The last token is kEnd. Throws SyntaxFailure.
std::vector<Token> tokenize(std::string_view source, const JinjaOptions& options);

}  // namespace apus::data::jinja
