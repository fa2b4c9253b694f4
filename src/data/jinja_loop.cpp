#include "data/jinja_loop.h"

#include <algorithm>

namespace apus::data::jinja {
namespace {

// loop.cycle and loop.changed, bound to their loop.
struct LoopMethod final : FunctionObject {
  LoopMethod(std::shared_ptr<const LoopObject> l, bool c) : loop(std::move(l)), is_cycle(c) {
    size = loop->size;
  }

  Value call(Runtime&, CallArgs& args) const override { return is_cycle ? cycle(args) : changed(args); }
  const char* type_name() const override { return "method"; }
  std::string repr() const override { return "<bound method LoopContext>"; }

  Value cycle(const CallArgs& args) const {
    if (args.positional.empty()) fail_type("no items for cycling given");
    return args.positional[loop->index0 % args.positional.size()];
  }

  Value changed(const CallArgs& args) const {
    auto& last = loop->last_changed;
    const bool is_same = last && last->size() == args.positional.size() &&
                         std::equal(args.positional.begin(), args.positional.end(), last->begin(), equal);
    if (!is_same && !loop->finished) last = args.positional;
    return Value::boolean(!is_same);
  }

  std::shared_ptr<const LoopObject> loop;
  bool is_cycle;
};

Value neighbour(const LoopObject& loop, bool next) {
  if (next && loop.index0 + 1 < loop.items.size()) return loop.items[loop.index0 + 1];
  if (!next && loop.index0 > 0) return loop.items[loop.index0 - 1];
  return Value::undefined_hint(next ? "there is no next item" : "there is no previous item");
}

Value number(size_t value) {
  return Value::integer(static_cast<int64_t>(value));
}

}  // namespace

LoopObject::LoopObject(const ForStmt& s, std::vector<Value> i, Scope* outer, int d)
    : statement(s), items(std::move(i)), scope(outer), depth0(d) {
  for (const Value& item : items) size = enlarged(size, item);
}

Value LoopObject::call(Runtime& runtime, CallArgs& args) const {
  if (!statement.recursive) {
    fail_type("The loop must have the 'recursive' marker to be called recursively.");
  }
  Arguments bound("loop", args, {"iterable"}, 1);
  const DepthGuard depth(runtime);
  CaptureGuard capture(runtime);
  const ScopeGuard guard(runtime, scope);
  statement.run(runtime, bound.at(0), depth0 + 1);
  return Value::string(capture.take());
}

std::string LoopObject::repr() const {
  return "<LoopContext " + std::to_string(index0 + 1) + "/" + std::to_string(items.size()) + ">";
}

std::optional<Value> LoopObject::attribute(Runtime&, std::string_view name) const {
  if (name == "index") return number(index0 + 1);
  if (name == "index0") return number(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(index0 + 1 == items.size());
  if (name == "length") return number(items.size());
  if (name == "revindex") return number(items.size() - index0);
  if (name == "revindex0") return number(items.size() - index0 - 1);
  if (name == "previtem") return neighbour(*this, false);
  if (name == "nextitem") return neighbour(*this, true);
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name != "cycle" && name != "changed") return std::nullopt;
  return Value::object(Type::kFunction, std::make_shared<LoopMethod>(shared_from_this(), name == "cycle"));
}

}  // namespace apus::data::jinja
