#include "apus/ops/recomputed.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "apus/base/error.h"
#include "apus/memory/gathered_storage.h"

namespace apus::ops {
namespace {

namespace tape = torch::autograd;

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs)
    leaves.push_back(input.detach().set_requires_grad(input.requires_grad()));
  return leaves;
}

at::Tensor as_bytes(const at::Tensor& value) {
  return value.contiguous().view({-1}).view(at::kByte);
}

}  // namespace

/// How the value is made, and the storage that its memory is lent to.
struct Recomputed::Source {
  std::vector<at::Tensor> inputs;
  Function make;
  std::unique_ptr<memory::GatheredStorage> home;

  at::Tensor compute() const {
    at::NoGradGuard no_grad;
    return make(detached(inputs));
  }
  void restore() const {
    if (!home->is_installed()) home->install(as_bytes(compute()));
  }
};

/// The tape node of a value: its backward is that of the function, run again with tape.
class Recomputed::Backward final : public tape::Node {
 public:
  explicit Backward(std::shared_ptr<Source> source) : source_(std::move(source)) {}

  tape::variable_list apply(tape::variable_list&& grads) override {
    APUS_ASSERT(source_, "backward ran twice through a recomputed value");
    std::vector<at::Tensor> leaves = detached(source_->inputs);
    tape::variable_list result(leaves.size()), wanted;
    if (grads.at(0).defined()) {
      at::AutoGradMode with_grad(true);
      const at::Tensor value = source_->make(leaves);
      for (const at::Tensor& leaf : leaves) {
        if (leaf.requires_grad()) wanted.push_back(leaf);
      }
      tape::variable_list found = tape::grad({value}, wanted, {grads[0]}, /*retain_graph=*/false,
                                             /*create_graph=*/false, /*allow_unused=*/true);
      auto next = found.begin();
      for (size_t index = 0; index < leaves.size(); ++index) {
        if (leaves[index].requires_grad()) result[index] = *next++;
      }
    }
    release_variables();
    return result;
  }

  void release_variables() override { source_.reset(); }
  std::string name() const override { return "apus::RecomputedBackward"; }

 private:
  std::shared_ptr<Source> source_;
};

Recomputed::Recomputed(at::Tensor value) : value_(std::move(value)) {}

Recomputed::Recomputed(std::vector<at::Tensor> inputs, Function make) {
  const bool differentiable = at::GradMode::is_enabled() &&
                              std::any_of(inputs.begin(), inputs.end(),
                                          [](const at::Tensor& input) { return input.requires_grad(); });
  if (!differentiable) {
    value_ = make(inputs);
    return;
  }
  source_ = std::make_shared<Source>();
  source_->inputs = std::move(inputs);
  source_->make = std::move(make);
  const at::Tensor value = source_->compute();
  source_->home = std::make_unique<memory::GatheredStorage>(
      static_cast<int64_t>(value.nbytes()), value.device(),
      "a recomputed value is read before a gradient has reached one of its users");
  source_->home->install(as_bytes(value));
  value_ = source_->home->view(0, value.sizes(), value.scalar_type());

  const auto node = std::shared_ptr<Backward>(new Backward(source_), tape::deleteNode);
  tape::edge_list edges;
  for (const at::Tensor& input : source_->inputs) {
    edges.push_back(input.requires_grad() ? tape::impl::gradient_edge(input) : tape::Edge());
  }
  node->set_next_edges(std::move(edges));
  const uint32_t slot = node->add_input_metadata(value_);
  tape::impl::set_gradient_edge(value_, tape::Edge(node, slot));
}

void Recomputed::drop_until(const std::vector<at::Tensor>& users) const {
  if (!source_) return;
  source_->home->remove();
  for (const at::Tensor& user : users) {
    if (!user.requires_grad()) continue;
    user.register_hook([source = source_](const at::Tensor&) { source->restore(); });
  }
}

}  // namespace apus::ops
