#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/error.h"

namespace apus {
class Clock;
}

namespace apus::data {

/// What went wrong in a template. The kinds follow the exception a Python renderer would raise.
enum class JinjaErrorKind {
  kRaiseException,  ///< the template called raise_exception; the message is exactly its argument
  kUndefined,       ///< an undefined value was used for more than printing or testing
  kType,            ///< an operation on values of the wrong type
  kSyntax,          ///< the template text is not Jinja, or names an unknown tag, filter or test
  kSecurity,        ///< an attribute that the sandbox forbids (a mutating method, a name with _)
  kLimit,           ///< RenderLimits or the nesting limit of the parser were exceeded
  kNotSupported,    ///< valid Jinja that this engine lacks; raised while parsing wherever possible
  kOther,           ///< anything else: division by zero, substring not found, ...
};

/// The name of a kind in the spelling of the reference cases ("raise_exception", "undefined", ...).
APUS_API std::string_view jinja_error_kind_name(JinjaErrorKind kind);

/// A template could not be parsed or rendered.
/// what() is the bare message for kRaiseException (it is written for the user of the model), and
/// "name:line: message" for every other kind.
class APUS_API JinjaError final : public Error {
 public:
  /// `line` is 1-based; 0 where it is not known.
  JinjaError(JinjaErrorKind kind, const std::string& template_name, int line, const std::string& reason);
  ~JinjaError() override;

  JinjaErrorKind kind() const { return kind_; }
  int line() const { return line_; }
  /// The message without the place.
  const std::string& reason() const { return reason_; }

 private:
  JinjaErrorKind kind_;
  int line_;
  std::string reason_;
};

/// How template text is read. The defaults are those of published chat templates.
struct APUS_API JinjaOptions {
  bool trim_blocks = true;              ///< drop the first newline after a block or a comment
  bool lstrip_blocks = true;            ///< drop white space from line start to a block or a comment
  bool keep_trailing_newline = false;   ///< keep the newline that ends the template
  int max_nesting = 200;                ///< deepest nesting of blocks and of expressions
  size_t max_source_bytes = 16u << 20;  ///< longest template text
};

/// Bounds on one rendering, because templates come with untrusted models.
/// Exceeding one raises kLimit. The defaults are far above what published templates need.
struct APUS_API RenderLimits {
  uint64_t max_steps = 50'000'000;       ///< evaluated nodes, plus one per 64 bytes or element built
  size_t max_output_bytes = 256u << 20;  ///< longest text, final or intermediate
  int max_depth = 1000;                  ///< nested evaluations: expressions, blocks, macro calls
};

/// What one rendering may use from outside.
struct APUS_API RenderOptions {
  /// The time that strftime_now tells, in local time. nullptr: calling it is an error.
  const Clock* clock = nullptr;
  RenderLimits limits = {};
};

/// A rendered text, and which parts of it a model would have generated.
struct APUS_API RenderResult {
  std::string text;
  /// [start, end) of each {% generation %} block in code points of `text`, in order of rendering.
  std::vector<std::pair<size_t, size_t>> generation_spans;
};

/// A chat template: Jinja 2 as Hugging Face transformers sets it up (immutable sandbox, trim_blocks,
/// lstrip_blocks, loop controls, generation blocks, tojson by Python's json.dumps, raise_exception,
/// strftime_now, namespace). Printing, arithmetic and comparison follow Python.
/// Parse once, render many times; copies share the parsed form.
/// Threads: render is const and safe to call from several threads at once.
/// Security: no file, no environment variable and no code outside the template is reachable. Values
///           are immutable except namespaces. Work, memory and recursion are bounded by RenderLimits.
/// Source:   the Jinja 2 template documentation, version 3.1; transformers' chat template guide.
///           Deviations: include, import and extends fail as they do without a loader; urlize,
///           pprint of long values, random and lipsum are kNotSupported; async is absent.
class APUS_API JinjaTemplate final {
 public:
  /// Reads template text.
  /// `name` stands in messages only.
  /// Throws: JinjaError (kSyntax, kLimit, kNotSupported).
  static JinjaTemplate parse(std::string_view source, std::string name, const JinjaOptions& options = {});

  ~JinjaTemplate();
  JinjaTemplate(const JinjaTemplate&);
  JinjaTemplate& operator=(const JinjaTemplate&);
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;

  /// Renders with `context`, an object whose keys are the template's variables.
  /// Only the keys that the template mentions are read.
  /// Throws: JinjaError of any kind but kSyntax at parse time; ConfigError if context is no object.
  RenderResult render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

  const std::string& name() const;
  /// True if the template has {% generation %} blocks.
  bool has_generation_blocks() const;
  /// True if the template reads a variable of that name, wherever it stands.
  bool mentions(std::string_view variable) const;

 private:
  struct Parsed;
  explicit JinjaTemplate(std::shared_ptr<const Parsed> parsed);

  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace apus::data
