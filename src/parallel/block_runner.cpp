#include "apus/parallel/block_runner.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <utility>

#include "apus/base/error.h"
#include "apus/parallel/gatherer.h"

namespace apus::parallel {
namespace {

namespace tape = torch::autograd;

/// A leaf with the values of `input`, recorded anew.
at::Tensor detached_leaf(const at::Tensor& input, bool needs_grad) {
  at::Tensor leaf = input.detach();
  if (needs_grad) leaf.set_requires_grad(true);
  return leaf;
}

}  // namespace

/// What the runner remembers of a recorded run until its backward.
struct BlockRunner::Record {
  size_t unit = 0;
  std::vector<at::Tensor> trainable;
  bool done = false;
  Gatherer::Hold kept;           // from forward to backward, where the unit stays gathered
  ActivationStore::Held stored;  // its input, where that waits on the host
};

/// The tape node of one run of a unit.
class BlockRunner::UnitBackward final : public tape::Node {
 public:
  UnitBackward(BlockRunner& runner, std::shared_ptr<Record> record, BlockRunner::Function function,
               bool input_needs_grad)
      : runner_(runner),
        record_(std::move(record)),
        function_(std::move(function)),
        input_needs_grad_(input_needs_grad) {}
  ~UnitBackward() override { give_back(); }

  /// Runs the unit for the first time; keeps its tape, or its input alone.
  at::Tensor forward(const at::Tensor& input, Recompute recompute) {
    Gatherer::Hold hold = runner_.hold_forward(record_->unit);
    at::Tensor output;
    if (recompute == Recompute::kBlock) {
      const at::Tensor leaf = input.detach();
      if (runner_.stores(*record_, leaf)) {
        record_->stored = runner_.store_->store(leaf);
      } else {
        input_ = leaf;
      }
      at::NoGradGuard no_grad;
      output = function_(leaf).detach();
    } else {
      record(input);
      output = inner_output_.detach();
    }
    record_->kept = runner_.keep(record_->unit, std::move(hold));
    return output;
  }

  tape::variable_list apply(tape::variable_list&& grads) override {
    APUS_ASSERT(!released_, "backward ran twice through one unit");
    Gatherer::Hold hold = runner_.hold_backward(*record_);
    record_->kept.end();
    at::Tensor input = take_input();
    if (!inner_output_.defined()) record(std::move(input));
    tape::variable_list result(num_outputs());
    std::vector<at::Tensor> wanted = back_propagate(grads.at(0), result);
    release_variables();
    hold.end();
    record_->done = true;
    runner_.report(*record_, wanted);
    return result;
  }

  void release_variables() override {
    released_ = true;
    give_back();
    input_.reset();
    inner_input_.reset();
    inner_output_.reset();
    function_ = nullptr;
  }

  std::string name() const override { return "apus::UnitBackward"; }

 private:
  void give_back() {
    record_->kept.end();
    record_->stored.end();
  }

  /// What forward kept, if anything; the next unit's input starts its way back from the host.
  at::Tensor take_input() {
    at::Tensor input = record_->stored ? record_->stored.fetch() : std::move(input_);
    if (Record* next = runner_.next_backward(*record_)) next->stored.prefetch();
    return input;
  }

  void record(at::Tensor input) {
    at::AutoGradMode with_grad(true);
    inner_input_ = detached_leaf(input, input_needs_grad_);
    inner_output_ = function_(inner_input_);
  }

  /// Gradients of the trainable parameters; the input's goes into `result`.
  std::vector<at::Tensor> back_propagate(const at::Tensor& grad, tape::variable_list& result) {
    const std::vector<at::Tensor>& trainable = record_->trainable;
    std::vector<at::Tensor> grads(trainable.size() + 1);
    if (grad.defined() && inner_output_.requires_grad()) {
      tape::variable_list wanted = trainable;
      if (input_needs_grad_) wanted.push_back(inner_input_);
      grads = tape::grad({inner_output_}, wanted, {grad}, /*retain_graph=*/false, /*create_graph=*/false,
                         /*allow_unused=*/true);
    }
    if (input_needs_grad_) result.at(0) = grads.at(trainable.size());
    grads.resize(trainable.size());
    return grads;
  }

  BlockRunner& runner_;
  std::shared_ptr<Record> record_;
  BlockRunner::Function function_;
  bool input_needs_grad_;
  bool released_ = false;
  at::Tensor input_, inner_input_, inner_output_;
};

BlockRunner::BlockRunner(memory::GradSink& sink, Gatherer* gatherer, const BlockRunnerOptions& options)
    : sink_(sink), gatherer_(gatherer), options_(options) {
  if (options_.activations == memory::Residency::kHost) store_ = std::make_unique<ActivationStore>();
}

BlockRunner::~BlockRunner() = default;

Gatherer::Hold BlockRunner::hold_forward(size_t unit) {
  return gatherer_ ? gatherer_->forward(unit) : Gatherer::Hold();
}

/// Gathers for a unit's backward, and starts the next one's gather.
Gatherer::Hold BlockRunner::hold_backward(const Record& record) {
  if (!gatherer_) return {};
  const Record* next = next_backward(record);
  return gatherer_->backward(record.unit, next ? std::optional(next->unit) : std::nullopt);
}

/// Among the recorded units that are still to run after this one, the last; null: there is none.
BlockRunner::Record* BlockRunner::next_backward(const Record& record) const {
  Record* next = nullptr;
  for (const auto& other : records_) {
    if (!other->done && other.get() != &record) next = other.get();
  }
  return next;
}

bool BlockRunner::stores(const Record& record, const at::Tensor& input) const {
  return store_ && record.unit < options_.kept_from && ActivationStore::takes(input);
}

/// What stays of a forward's hold until backward.
Gatherer::Hold BlockRunner::keep(size_t unit, Gatherer::Hold hold) {
  if (!gatherer_ || gatherer_->keeps_for_backward(unit)) return hold;
  gatherer_->keep_secondary(unit);
  return {};
}

void BlockRunner::report(const Record& record, const std::vector<at::Tensor>& grads) {
  for (size_t index = 0; index < record.trainable.size(); ++index) {
    sink_.add(record.trainable[index], index < grads.size() ? grads[index] : at::Tensor());
  }
}

at::Tensor BlockRunner::run_plainly(const Unit& unit, const at::Tensor& input, const Function& function) {
  at::NoGradGuard no_grad;
  const Gatherer::Hold hold = hold_forward(unit.index);
  return function(input);
}

at::Tensor BlockRunner::run(const Unit& unit, const at::Tensor& input, Recompute recompute,
                            Function function) {
  auto record = std::make_shared<Record>();
  record->unit = unit.index;
  for (const at::Tensor& parameter : unit.parameters) {
    if (sink_.takes(parameter)) record->trainable.push_back(parameter);
  }
  const bool input_needs_grad = input.requires_grad();
  if (!at::GradMode::is_enabled() || (record->trainable.empty() && !input_needs_grad)) {
    return run_plainly(unit, input, function);
  }
  for (const at::Tensor& parameter : record->trainable) sink_.expect(parameter);
  records_.push_back(record);
  if (store_) store_->let_go();

  const auto node = std::shared_ptr<UnitBackward>(
      new UnitBackward(*this, std::move(record), std::move(function), input_needs_grad), tape::deleteNode);
  // A node without next edges would never run; the edge of an input that needs no gradient is an empty one.
  node->set_next_edges({input_needs_grad ? tape::impl::gradient_edge(input) : tape::Edge()});
  at::Tensor output;
  {
    at::NoGradGuard no_grad;
    output = node->forward(input, recompute);
  }
  const uint32_t slot = node->add_input_metadata(output);
  tape::impl::set_gradient_edge(output, tape::Edge(node, slot));
  return output;
}

void BlockRunner::finish_backward() {
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
    if ((*record)->done) continue;
    hold_backward(**record).end();
    (*record)->kept.end();
    (*record)->done = true;
    report(**record, {});
  }
  records_.clear();
}

}  // namespace apus::parallel
