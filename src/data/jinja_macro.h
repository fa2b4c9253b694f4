#pragma once

#include <optional>
#include <string>

#include "data/jinja_ast.h"

namespace apus::data::jinja {

/// A macro, or the body of a call block, with the scope it was defined in.
struct MacroObject final : FunctionObject {
  MacroObject(const MacroDefinition& d, Scope* s) : definition(d), scope(s) {}

  Value call(Runtime& runtime, CallArgs& args) const override;
  const char* type_name() const override { return "Macro"; }
  std::string repr() const override;
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) const override;

  const MacroDefinition& definition;
  Scope* scope;

 private:
  void bind(Runtime& runtime, CallArgs& args) const;
  void bind_parameters(Runtime& runtime, CallArgs& args) const;
  std::string quoted_name() const;
};

/// The macro as a value; keeps the current scope alive until the rendering ends.
Value make_macro(Runtime& runtime, const MacroDefinition& definition);

}  // namespace apus::data::jinja
