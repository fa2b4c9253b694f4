// Bugs of shared/pitfalls.md in what is gathered, recomputed and sent while a unit runs; the row ends a
// test's name.
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apus/comm/decorators.h"
#include "tests/support/chosen_gradients.h"
#include "tests/support/late_communicator.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;

constexpr auto kNotLast = MicroBatchPlace::kNotLast;
constexpr auto kLast = MicroBatchPlace::kLast;
constexpr int64_t kWidth = 8;

using Masters = std::map<std::string, at::Tensor>;

/// Six layers tanh(x W^T), two steps of two micro-batches; the masters.
Masters train_layers(const ShardPolicy& policy, const DataParallel& ranks, bool deterministic) {
  std::vector<at::Tensor> weights;
  ModelUnits model;
  for (int64_t layer = 0; layer < 6; ++layer) {
    weights.push_back(random_leaf({kWidth, kWidth}, 40 + layer));
    const std::string name = "w" + std::to_string(layer);
    model.units.push_back({"layer" + name, {{name, weights.back()}}});
  }
  ShardedUnits engine(
      model, ranks,
      {.policy = policy, .bucket_elements = 100, .deterministic = deterministic, .poison_released = true});
  for (int step = 0; step < 2; ++step) {
    for (const MicroBatchPlace place : {kNotLast, kLast}) {
      at::Tensor x = random_tensor({3, kWidth}, static_cast<uint64_t>(ranks.dp->rank() + 10 * step));
      for (size_t layer = 0; layer < weights.size(); ++layer) {
        const at::Tensor weight = weights[layer];
        x = engine.run(layer, x, [weight](const at::Tensor& in) { return at::linear(in, weight).tanh(); });
      }
      engine.backward(x.square().sum(), place);
    }
    EXPECT_TRUE(std::isfinite(engine.update({.lr = 1e-2}))) << policy.name << ": NaN was read";
  }
  Masters masters;
  for (const auto& parameter : engine.gather_masters()) masters[parameter.name] = parameter.tensor.clone();
  return masters;
}

/// Trains on communicators that are late in one way, and expects the bits of punctual ones.
void expect_lateness_changes_nothing(Late late) {
  for (const bool deterministic : {false, true}) {
    std::vector<Masters> punctual;
    under_every_policy(4, [&](const ShardPolicy& policy, const DataParallel& ranks) {
      Masters masters = train_layers(policy, ranks, deterministic);
      if (ranks.dp->rank() == 0) punctual.push_back(std::move(masters));
    });
    const std::vector<ShardPolicy> policies = policies_for(4);
    under_every_policy(
        4,
        [&](const ShardPolicy& policy, const DataParallel& ranks) {
          size_t index = 0;
          while (policies[index].name != policy.name ||
                 policies[index].reshard_after_forward != policy.reshard_after_forward) {
            ++index;
          }
          for (const auto& [name, tensor] : train_layers(policy, ranks, deterministic)) {
            EXPECT_TRUE(tensor.equal(punctual[index].at(name))) << policy.name << " " << name;
          }
        },
        [late](std::shared_ptr<comm::Communicator> plain) -> std::shared_ptr<comm::Communicator> {
          return std::make_shared<LateCommunicator>(std::move(plain), late);
        });
  }
}

TEST(Buffers, ThatAnOperationReadsStayUntilItHasEnded_Pitfall7) {
  expect_lateness_changes_nothing(Late::kStart);
}

TEST(Buffers, ThatAnOperationWritesAreReadAfterItsWait_Pitfall8) {
  expect_lateness_changes_nothing(Late::kResult);
}

/// Tensors of several dtypes, frozen.
std::vector<at::Tensor> mixed_tensors() {
  return {random_tensor({5, 7}, 1, at::kBFloat16), random_tensor({3}, 2), at::arange(11).to(at::kByte),
          random_tensor({2, 2}, 3, at::kHalf), random_tensor({9}, 4)};
}

TEST(GatheredUnit, GivesEachParameterItsOwnDtypeAndBits_Pitfall12) {
  under_every_policy(4, [](const ShardPolicy& policy, const DataParallel& ranks) {
    std::vector<at::Tensor> frozen = mixed_tensors();
    // A unit of frozen parameters in four dtypes, and trainable ones in two, which are sharded as well.
    const at::Tensor narrow = random_leaf({6, 6}, 5, at::kBFloat16), wide = random_leaf({6}, 6);
    const at::Tensor narrow_before = narrow.detach().clone(), wide_before = wide.detach().clone();
    ModelUnits model{{{"first", {}},
                      {"second", {{"narrow", narrow}, {"wide", wide}}},
                      {"third", {{"head", random_leaf({1}, 7)}}}}};
    for (size_t index = 0; index < frozen.size(); ++index) {
      model.units[0].parameters.push_back({"frozen" + std::to_string(index), frozen[index]});
    }
    ShardedUnits engine(
        model, ranks,
        {.policy = policy, .trainable = policy.param_shard ? Placement::kSharded : Placement::kReplicated});
    const std::vector<at::Tensor> wanted = mixed_tensors();
    at::Tensor x = engine.run(0, at::ones({}), [&](const at::Tensor& in) {
      for (size_t index = 0; index < wanted.size(); ++index) {
        expect_equal(frozen[index], wanted[index], policy.name + ", frozen " + std::to_string(index));
      }
      return in * 2;
    });
    x = engine.run(1, x, [&](const at::Tensor& in) {
      expect_equal(narrow.detach(), narrow_before, policy.name + ", trainable bf16");
      expect_equal(wide.detach(), wide_before, policy.name + ", trainable fp32");
      return in * (narrow.to(at::kFloat).sum() + wide.sum());
    });
    engine.backward(x, kLast);
    EXPECT_TRUE(step_gradients(engine).at("narrow").eq(2.0 * ranks.dp->size()).all().item<bool>())
        << policy.name;
  });
}

/// Layers whose large weight is frozen and whose small scale trains, as under LoRA.
struct FrozenLayers {
  explicit FrozenLayers(at::ScalarType base = at::kFloat) {
    for (int64_t layer = 0; layer < 4; ++layer) {
      weights.push_back(random_tensor({kWidth, kWidth}, 60 + layer, base));
      scales.push_back(random_leaf({kWidth}, 70 + layer));
    }
  }
  ModelUnits units() const {
    ModelUnits model;
    for (size_t layer = 0; layer < 4; ++layer) {
      const std::string name = std::to_string(layer);
      model.units.push_back(
          {"layer" + name, {{"weight" + name, weights[layer]}, {"scale" + name, scales[layer]}}});
    }
    return model;
  }
  at::Tensor layer(size_t index, const at::Tensor& in) const {
    const at::Tensor base = at::linear(in.to(weights[index].scalar_type()), weights[index]).to(at::kFloat);
    return (base * scales[index]).tanh();
  }
  /// Gradients of the scales by the plain tape.
  Masters plain_gradients(const at::Tensor& rows) const {
    at::Tensor x = rows;
    for (size_t index = 0; index < 4; ++index) x = layer(index, x);
    x.square().sum().backward();
    Masters gradients;
    for (size_t index = 0; index < 4; ++index)
      gradients["scale" + std::to_string(index)] = scales[index].grad();
    return gradients;
  }

  std::vector<at::Tensor> weights, scales;
};

void expect_plain_gradients(at::ScalarType base, Recompute recompute, const ShardPolicy& policy,
                            const DataParallel& ranks) {
  const at::Tensor rows = random_tensor({3, kWidth}, 9);
  const Masters wanted = FrozenLayers(base).plain_gradients(rows);
  const FrozenLayers layers(base);
  ShardedUnits engine(layers.units(), ranks, {.policy = policy, .poison_released = true});
  int calls = 0;
  at::Tensor x = rows;
  for (size_t index = 0; index < 4; ++index) {
    x = engine.run(
        index, x,
        [&, index](const at::Tensor& in) {
          ++calls;
          EXPECT_EQ(layers.weights[index].sizes(), at::IntArrayRef({kWidth, kWidth})) << policy.name;
          EXPECT_EQ(layers.weights[index].scalar_type(), base) << policy.name;
          EXPECT_EQ(layers.scales[index].scalar_type(), at::kFloat) << policy.name;
          return layers.layer(index, in);
        },
        recompute);
  }
  engine.backward(x.square().sum(), kLast);
  EXPECT_EQ(calls, recompute == Recompute::kBlock ? 8 : 4) << policy.name;
  for (const auto& [name, gradient] : step_gradients(engine)) {
    EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    expect_close(gradient, wanted.at(name) * ranks.dp->size(), {1e-5, 1e-5}, policy.name + " " + name);
  }
  for (const auto& group : engine.groups()) EXPECT_EQ(group->dtype(), at::kFloat) << policy.name;
}

TEST(RecomputedUnit, FindsItsFrozenParametersAgain_Pitfall14) {
  under_every_policy(4, [](const ShardPolicy& policy, const DataParallel& ranks) {
    expect_plain_gradients(at::kFloat, Recompute::kBlock, policy, ranks);
  });
}

TEST(Adapters, InFp32OnABfloat16BaseKeepTheirDtype_Pitfall17) {
  under_every_policy(4, [](const ShardPolicy& policy, const DataParallel& ranks) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
      expect_plain_gradients(at::kBFloat16, recompute, policy, ranks);
    }
  });
}

TEST(RecomputedUnit, LeavesNothingOfItsSecondRunBehind_Pitfall15) {
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    run_ranks(2, [&](std::shared_ptr<comm::Communicator> plain) {
      const auto log = comm::CommLog::create();
      const auto recorded = comm::make_recorded_communicator(plain, log);
      const auto reductions = [&] {
        return log->count(comm::OpKind::kReduceScatter) + log->count(comm::OpKind::kAllReduce);
      };
      const std::vector<at::Tensor> weights{filled_leaf({4}, 1.0), filled_leaf({4}, 1.0)};
      ShardedUnits engine({{{"first", {{"first", weights[0]}}}, {"second", {{"second", weights[1]}}}}},
                          DataParallel::one_axis(*recorded), {.policy = policy, .bucket_elements = 1});
      for (const double value : {1.0, 10.0, 100.0}) {
        const MicroBatchPlace place = value == 100.0 ? kLast : kNotLast;
        const int64_t wanted = policy.grad_shard || place == kLast ? 2 : 0;
        log->clear();
        std::vector<int64_t> before;  // reductions that had started at each run of a unit
        at::Tensor x = at::zeros({});
        for (size_t unit = 0; unit < 2; ++unit) {
          const auto function = [&, unit](const at::Tensor& in) {
            before.push_back(reductions());
            return in + (weights[unit] * value).sum();
          };
          x = engine.run(unit, x, function, Recompute::kBlock);
        }
        engine.backward(x, place);
        EXPECT_EQ(reductions(), wanted) << policy.name << ", " << value;
        // first, second, second again, first again: by then the second one's gradient is complete.
        EXPECT_EQ(before, (std::vector<int64_t>{0, 0, 0, wanted / 2})) << policy.name << ", " << value;
      }
      expect_gradients(engine, 2 * 111.0, policy.name);
    });
  }
}

TEST(SecondaryPartition, FollowsALoad_Pitfall32) {
  run_ranks(4, [](std::shared_ptr<comm::Communicator> world) {
    std::vector<at::Tensor> weights;
    ModelUnits model;
    for (size_t unit = 0; unit < 4; ++unit) {
      weights.push_back(filled_leaf({6}, 1.0));
      const std::string name = "w" + std::to_string(unit);
      model.units.push_back({"unit" + name, {{name, weights[unit]}}});
    }
    ShardedUnits engine(model, DataParallel::one_axis(*world), {.policy = Zero3(/*secondary_partition=*/2)});
    const auto forward = [&] {
      at::Tensor x = at::zeros({});
      for (size_t unit = 0; unit < 4; ++unit) {
        const at::Tensor weight = weights[unit];
        x = engine.run(unit, x, [weight](const at::Tensor& in) { return in + weight.square().sum(); });
      }
      return x;
    };
    const at::Tensor abandoned = forward();  // the neighbours keep their parts of the old values
    for (const GroupState& state : engine.optimizer_states()) state.master.fill_(3.0);
    engine.load_finished(0);
    const at::Tensor loss = forward();
    EXPECT_EQ(loss.item<double>(), 4 * 6 * 9.0);
    // The gradient of w^2 reads w again in backward, from the neighbours.
    engine.backward(loss, kLast);
    expect_gradients(engine, 4 * 2 * 3.0, "after the load");
    engine.update({.lr = 0.5, .beta1 = 0.0, .beta2 = 0.0, .weight_decay = 0.0});
    const at::Tensor next = forward();
    const double updated = engine.gather_masters()[0].tensor[0].item<double>();
    EXPECT_LT(updated, 2.6);
    engine.backward(next, kLast);
    for (const auto& [name, gradient] : step_gradients(engine)) {
      EXPECT_NEAR(gradient[0].item<double>(), 4 * 2 * updated, 1e-5) << "after the update, " << name;
    }
  });
}

}  // namespace
}  // namespace apus::parallel
