#include "apus/parallel/block_runner.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

namespace tape = torch::autograd;

/// A leaf with the values of `input`, recorded anew.
at::Tensor detached_leaf(const at::Tensor& input, bool needs_grad) {
  at::Tensor leaf = input.detach();
  if (needs_grad) leaf.set_requires_grad(true);
  return leaf;
}

/// The tape node of one run of a unit.
class UnitBackward final : public tape::Node {
 public:
  UnitBackward(memory::GradSink& sink, std::vector<at::Tensor> trainable, BlockRunner::Function function,
               bool input_needs_grad)
      : sink_(sink),
        trainable_(std::move(trainable)),
        function_(std::move(function)),
        input_needs_grad_(input_needs_grad) {}

  /// Runs the unit for the first time; keeps its tape, or its input alone.
  at::Tensor forward(const at::Tensor& input, Recompute recompute) {
    if (recompute == Recompute::kBlock) {
      input_ = input.detach();
      at::NoGradGuard no_grad;
      return function_(input_).detach();
    }
    record(input);
    return inner_output_.detach();
  }

  tape::variable_list apply(tape::variable_list&& grads) override {
    APUS_ASSERT(!released_, "backward ran twice through one unit");
    if (!inner_output_.defined()) record(input_);
    tape::variable_list result(num_outputs());
    back_propagate(grads.at(0), result);
    release_variables();
    return result;
  }

  void release_variables() override {
    released_ = true;
    input_.reset();
    inner_input_.reset();
    inner_output_.reset();
    function_ = nullptr;
  }

  std::string name() const override { return "apus::UnitBackward"; }

 private:
  void record(const at::Tensor& input) {
    at::AutoGradMode with_grad(true);
    inner_input_ = detached_leaf(input, input_needs_grad_);
    inner_output_ = function_(inner_input_);
  }

  void back_propagate(const at::Tensor& grad, tape::variable_list& result) {
    std::vector<at::Tensor> grads(trainable_.size() + 1);
    if (grad.defined() && inner_output_.requires_grad()) {
      tape::variable_list wanted = trainable_;
      if (input_needs_grad_) wanted.push_back(inner_input_);
      grads = tape::grad({inner_output_}, wanted, {grad}, /*retain_graph=*/false, /*create_graph=*/false,
                         /*allow_unused=*/true);
    }
    // The tape is gone before the sink may start a reduction, so that its memory can be used for it.
    inner_output_.reset();
    if (input_needs_grad_) result.at(0) = grads.at(trainable_.size());
    for (size_t index = 0; index < trainable_.size(); ++index) sink_.add(trainable_[index], grads[index]);
  }

  memory::GradSink& sink_;
  std::vector<at::Tensor> trainable_;
  BlockRunner::Function function_;
  bool input_needs_grad_;
  bool released_ = false;
  at::Tensor input_, inner_input_, inner_output_;
};

}  // namespace

BlockRunner::BlockRunner(memory::GradSink& sink) : sink_(sink) {}

at::Tensor BlockRunner::run(const Unit& unit, const at::Tensor& input, Recompute recompute, Function function) {
  std::vector<at::Tensor> trainable;
  for (const at::Tensor& parameter : unit.parameters) {
    if (sink_.takes(parameter)) trainable.push_back(parameter);
  }
  const bool input_needs_grad = input.requires_grad();
  if (!at::GradMode::is_enabled() || (trainable.empty() && !input_needs_grad)) {
    at::NoGradGuard no_grad;
    return function(input);
  }
  for (const at::Tensor& parameter : trainable) sink_.expect(parameter);

  const auto node = std::shared_ptr<UnitBackward>(
      new UnitBackward(sink_, std::move(trainable), std::move(function), input_needs_grad), tape::deleteNode);
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

}  // namespace apus::parallel
