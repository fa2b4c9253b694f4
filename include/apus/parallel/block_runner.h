#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/grad_sink.h"
#include "apus/parallel/gatherer.h"

namespace apus::parallel {

/// What a unit keeps between forward and backward.
enum class Recompute {
  kNone,     ///< the unit's inner tape
  kPartial,  ///< its tape without what norms and the gated activation make (see nn::PassContext::light_tape)
  kBlock,    ///< its input only; backward runs the forward again
};

/// A piece of a model that is run, recomputed and reduced as one: the embedding, a block, the head.
struct APUS_API Unit {
  std::vector<at::Tensor> parameters;  ///< every parameter that the unit reads
  size_t index = 0;                    ///< its ordinal for the Gatherer
};

/// Runs units of a model under one tape node each: the one mechanism behind gathering, prefetch, gradient
/// reduction and recompute (offload and pipeline boundaries hook in at the same places).
///
/// Forward gathers the unit's parameters, runs it on a detached input and releases them. Backward gathers
/// them again, recomputes if told to, and releases them before the gradients go on. Parameters are not inputs
/// of the node: in backward the inner tape gives their gradients, which go to the GradSink in the order in
/// which the unit lists them, and only the input's gradient travels on. An input that needs no gradient (a
/// frozen embedding's output) gets none computed. Without grad mode, or with nothing to train at or below the
/// unit, it is called plainly (gathered and released all the same). Stream:      the current stream.
/// Determinism: recompute gives the bits of the first forward (units depend on nothing but their inputs).
class APUS_API BlockRunner final {
 public:
  /// Maps the unit's input to its output; called again in backward under kBlock.
  using Function = std::function<at::Tensor(const at::Tensor& input)>;

  /// Sink and gatherer (null: nothing is sharded) must outlive every graph that this runner recorded.
  explicit BlockRunner(memory::GradSink& sink, Gatherer* gatherer = nullptr);
  ~BlockRunner();

  at::Tensor run(const Unit& unit, const at::Tensor& input, Recompute recompute, Function function);

  /// Ends a micro-batch's backward: units that were recorded and that no gradient reached (a loss without a
  /// tape) are gathered, released and reported to the sink with zeros, in the order in which backward would
  /// have run them: this rank makes the collectives that its peers make.
  void finish_backward();

 private:
  struct Record;
  class UnitBackward;

  Gatherer::Hold hold_forward(size_t unit);
  Gatherer::Hold hold_backward(const Record& record);
  Gatherer::Hold keep(size_t unit, Gatherer::Hold hold);
  void report(const Record& record, const std::vector<at::Tensor>& grads);
  at::Tensor run_plainly(const Unit& unit, const at::Tensor& input, const Function& function);

  memory::GradSink& sink_;
  Gatherer* gatherer_;
  std::vector<std::shared_ptr<Record>> records_;
};

}  // namespace apus::parallel
