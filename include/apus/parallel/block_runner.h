#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/grad_sink.h"

namespace apus::parallel {

/// What a unit keeps between forward and backward.
enum class Recompute {
  kNone,   ///< the unit's inner tape
  kBlock,  ///< its input only; backward runs the forward again
};

/// A piece of a model that is run, recomputed and reduced as one: the embedding, a block, the head.
struct APUS_API Unit {
  std::vector<at::Tensor> parameters;  ///< every parameter that the unit reads
};

/// Runs units of a model under one tape node each: the one mechanism behind gradient reduction and recompute
/// (gathering, offload and prefetch hook in at the same places).
///
/// Forward runs the unit on a detached input. Its parameters are not inputs of the node: in backward the inner
/// tape gives their gradients, which go to the GradSink in the order in which the unit lists them, and only
/// the input's gradient travels on. An input that needs no gradient (a frozen embedding's output) gets none
/// computed. Without grad mode, or with nothing to train at or below the unit, it is called plainly.
/// Stream:      the current stream.
/// Determinism: recompute gives the bits of the first forward (units depend on nothing but their inputs).
class APUS_API BlockRunner final {
 public:
  /// Maps the unit's input to its output; called again in backward under kBlock.
  using Function = std::function<at::Tensor(const at::Tensor& input)>;

  /// The sink must outlive every graph that this runner recorded.
  explicit BlockRunner(memory::GradSink& sink);

  at::Tensor run(const Unit& unit, const at::Tensor& input, Recompute recompute, Function function);

 private:
  memory::GradSink& sink_;
};

}  // namespace apus::parallel
