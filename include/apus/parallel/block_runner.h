#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/grad_sink.h"
#include "apus/memory/residency.h"
#include "apus/parallel/activation_store.h"
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

/// What a BlockRunner does with what it keeps.
struct APUS_API BlockRunnerOptions {
  /// Where the input of a unit lies that runs under kBlock, between its forward and its backward. kHost: in
  /// an ActivationStore. Inputs that the store does not take stay, as do the tapes of other units.
  memory::Residency activations = memory::Residency::kDevice;
  /// The inputs of units from this ordinal on stay on the device: the last ones are needed at once.
  size_t kept_from = SIZE_MAX;
};

/// Runs units of a model under one tape node each: the one mechanism behind gathering, prefetch, gradient
/// reduction, recompute and activations on the host (pipeline boundaries hook in at the same places).
///
/// Forward gathers the unit's parameters, runs it on a detached input and releases them. Backward gathers
/// them again, recomputes if told to, and releases them before the gradients go on. Parameters are not inputs
/// of the node: in backward the inner tape gives their gradients, which go to the GradSink in the order in
/// which the unit lists them, and only the input's gradient travels on. An input that needs no gradient (a
/// frozen embedding's output) gets none computed. Without grad mode, or with nothing to train at or below the
/// unit, it is called plainly (gathered and released all the same).
/// Activations on the host: an input leaves while its unit runs, and its device memory is given back as the
/// next recorded unit begins; backward asks for the next unit's as it begins one. Passes without tape store
/// nothing. A graph that is dropped before its backward gives its buffers back.
/// Stream:      the current stream; copies of stored inputs run on the store's.
/// Determinism: recompute gives the bits of the first forward (units depend on nothing but their inputs),
///              wherever these lay.
class APUS_API BlockRunner final {
 public:
  /// Maps the unit's input to its output; called again in backward under kBlock.
  using Function = std::function<at::Tensor(const at::Tensor& input)>;

  /// Sink and gatherer (null: nothing is sharded) must outlive every graph that this runner recorded.
  explicit BlockRunner(memory::GradSink& sink, Gatherer* gatherer = nullptr,
                       const BlockRunnerOptions& options = {});
  ~BlockRunner();

  at::Tensor run(const Unit& unit, const at::Tensor& input, Recompute recompute, Function function);

  /// Ends a micro-batch's backward: units that were recorded and that no gradient reached (a loss without a
  /// tape) are gathered, released and reported to the sink with zeros, in the order in which backward would
  /// have run them: this rank makes the collectives that its peers make.
  void finish_backward();

  /// Host memory that stored inputs took so far, kept for later ones; 0 with activations on the device.
  int64_t host_bytes() const { return store_ ? store_->host_bytes() : 0; }

 private:
  struct Record;
  class UnitBackward;

  Gatherer::Hold hold_forward(size_t unit);
  Gatherer::Hold hold_backward(const Record& record);
  Record* next_backward(const Record& record) const;
  bool stores(const Record& record, const at::Tensor& input) const;
  Gatherer::Hold keep(size_t unit, Gatherer::Hold hold);
  void report(const Record& record, const std::vector<at::Tensor>& grads);
  at::Tensor run_plainly(const Unit& unit, const at::Tensor& input, const Function& function);

  memory::GradSink& sink_;
  Gatherer* gatherer_;
  BlockRunnerOptions options_;
  std::unique_ptr<ActivationStore> store_;
  std::vector<std::shared_ptr<Record>> records_;
};

}  // namespace apus::parallel
