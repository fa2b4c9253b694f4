#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/jinja_ast.h"

namespace apus::data::jinja {

/// The variable `loop` of a for block.
struct LoopObject final : FunctionObject, std::enable_shared_from_this<LoopObject> {
  LoopObject(const ForStmt& s, std::vector<Value> i, Scope* outer, int d);

  Value call(Runtime& runtime, CallArgs& args) const override;
  const char* type_name() const override { return "LoopContext"; }
  std::string repr() const override;
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) const override;

  const ForStmt& statement;
  std::vector<Value> items;
  Scope* scope;  // around the loop; a recursive call runs in it
  int depth0;
  size_t index0 = 0;
  bool finished = false;
  /// The arguments of the last call of changed; dropped when the loop ends, as they might refer back to it.
  mutable std::optional<std::vector<Value>> last_changed;
};

}  // namespace apus::data::jinja
