#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apus/comm/device_mesh.h"
#include "apus/parallel/sharded_units.h"
#include "tests/support/policies.h"
#include "tests/support/rank_threads.h"

/// The engine over gradients that a test chooses, under every policy.
namespace apus::testing {

/// A leaf that trains, filled with one value.
inline at::Tensor filled_leaf(at::IntArrayRef sizes, double value, at::ScalarType dtype = at::kFloat) {
  return at::full(sizes, value, dtype).set_requires_grad(true);
}

/// Units of one parameter each, whose loss is the sum of parameter x gradient: backward gives that gradient.
class ChosenGradients {
 public:
  ChosenGradients(std::vector<at::Tensor> leaves, const parallel::DataParallel& ranks,
                  const parallel::ShardedModelOptions& options)
      : leaves_(std::move(leaves)), engine_(units(leaves_), ranks, options) {}

  parallel::ShardedUnits& engine() { return engine_; }

  /// Runs all units; gradients[k] has the shape of leaf k or is a scalar for all of its elements.
  void micro_batch(const std::vector<at::Tensor>& gradients, parallel::MicroBatchPlace place) {
    at::Tensor loss = at::zeros({});
    for (size_t unit = 0; unit < leaves_.size(); ++unit) {
      const at::Tensor leaf = leaves_[unit], gradient = gradients[unit];
      loss = engine_.run(unit, loss, [leaf, gradient](const at::Tensor& sum) {
        return sum + (leaf * gradient.to(leaf.scalar_type())).to(at::kFloat).sum();
      });
    }
    engine_.backward(loss, place);
  }
  /// The same number for every element of every parameter.
  void micro_batch(double gradient, parallel::MicroBatchPlace place) {
    micro_batch(std::vector<at::Tensor>(leaves_.size(), at::full({}, gradient)), place);
  }

 private:
  static parallel::ModelUnits units(const std::vector<at::Tensor>& leaves) {
    parallel::ModelUnits model;
    for (size_t unit = 0; unit < leaves.size(); ++unit) {
      const std::string name = "w" + std::to_string(unit);
      model.units.push_back({"unit" + name, {{name, leaves[unit]}}});
    }
    return model;
  }

  std::vector<at::Tensor> leaves_;
  parallel::ShardedUnits engine_;
};

/// The step's gradient of every parameter before the update, put together from the ranges that the ranks own.
/// Where a rank keeps more than its range, that must agree. Collectives: one all_gather a group.
inline std::map<std::string, at::Tensor> step_gradients(parallel::ShardedUnits& engine) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> gradients;
  for (const auto& group : engine.groups()) {
    const at::Tensor own = group->owned_grad().contiguous();
    const at::Tensor all = at::empty({group->layout().padded_elements()}, own.options());
    if (all.numel() > 0) engine.ranks().shard->all_gather(all, own)->wait();
    const memory::ElementRange updated = group->update_range();
    EXPECT_TRUE(group->reduced_grad().equal(all.slice(0, updated.begin, updated.end)))
        << "the gradient that this rank updates with is not the ranks' sum";
    for (size_t index = 0; index < group->parameters().size(); ++index) {
      const memory::GroupParameter& parameter = group->parameters()[index];
      const memory::ElementRange range = group->layout().range_of(static_cast<int64_t>(index));
      gradients[parameter.name] = all.slice(0, range.begin, range.end).view(parameter.tensor.sizes());
    }
  }
  return gradients;
}

/// Expects every element of every parameter's gradient to be exactly `value`.
inline void expect_gradients(parallel::ShardedUnits& engine, double value, const std::string& what) {
  for (const auto& [name, gradient] : step_gradients(engine)) {
    EXPECT_TRUE(gradient.to(at::kDouble).eq(value).all().item<bool>())
        << what << ", " << name << ": " << (gradient.numel() ? gradient.reshape({-1})[0].item<double>() : 0.0)
        << " instead of " << value;
  }
}

/// Runs `body` on the ranks of a world under each policy that fits it, on communicators that `wrap` has
/// wrapped.
inline void under_every_policy(
    int world, const std::function<void(const parallel::ShardPolicy&, const parallel::DataParallel&)>& body,
    const std::function<std::shared_ptr<comm::Communicator>(std::shared_ptr<comm::Communicator>)>& wrap =
        {}) {
  for (const parallel::ShardPolicy& policy : policies_for(world)) {
    run_ranks(world, [&](std::shared_ptr<comm::Communicator> plain) {
      const comm::DeviceMesh mesh(wrap ? wrap(std::move(plain)) : std::move(plain), policy.mesh());
      body(policy, parallel::DataParallel::of(mesh));
    });
  }
}

}  // namespace apus::testing
