// The engine on a module that apus does not know: layers made of ATen calls alone, with a tied weight, an
// unused, an empty and a tiny parameter, mixed dtypes.
#include "apus/parallel/sharded_units.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "apus/comm/fake_communicator.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using apus::testing::random_leaf;
using apus::testing::random_tensor;
using apus::testing::run_ranks;

constexpr int64_t kWidth = 12, kLayers = 4, kRows = 12;

/// Layers y = tanh(x W^T + b); the last unit reads the first one's weight again.
struct Layers {
  explicit Layers(at::ScalarType dtype = at::kFloat) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      weights.push_back(random_leaf({kWidth, kWidth}, 10 + layer, dtype));
      biases.push_back(random_leaf({kWidth}, 20 + layer));
    }
  }

  ModelUnits units() const {
    ModelUnits model;
    for (size_t layer = 0; layer < weights.size(); ++layer) {
      const std::string name = "layer" + std::to_string(layer);
      model.units.push_back({name, {{name + ".weight", weights[layer]}, {name + ".bias", biases[layer]}}});
    }
    model.units[1].parameters.push_back({"unused", unused});
    model.units[2].parameters.push_back({"empty", empty});
    model.units.push_back({"tied", {{"layer0.weight", weights[0]}, {"scale", scale}}});
    return model;
  }

  /// Runs all units on [rows, kWidth].
  at::Tensor run(ShardedUnits& engine, at::Tensor x, Recompute recompute) const {
    for (size_t layer = 0; layer < weights.size(); ++layer) {
      x = engine.run(
          layer, x,
          [this, layer](const at::Tensor& in) {
            return at::linear(in.to(weights[layer].scalar_type()), weights[layer])
                .to(at::kFloat)
                .add(biases[layer])
                .tanh();
          },
          recompute);
    }
    return engine.run(weights.size(), x, [this](const at::Tensor& in) {
      return at::linear(in, weights[0].to(at::kFloat)) * scale;
    });
  }

  std::vector<at::Tensor> weights, biases;
  at::Tensor unused = random_leaf({3}, 30);
  at::Tensor empty = at::empty({0, kWidth}).set_requires_grad(true);
  at::Tensor scale = random_leaf({1}, 31);
};

struct Case {
  ShardPolicy policy;
  int world = 2;
  Recompute recompute = Recompute::kNone;
  int micro_batches = 2;
  at::ScalarType dtype = at::kFloat;
};

/// Two steps over kRows rows, split over ranks and micro-batches; masters by name.
std::map<std::string, at::Tensor> train(const Case& the, const DataParallel& ranks,
                                        ShardedModelOptions options = {}) {
  const Layers layers(the.dtype);
  options.policy = the.policy;
  options.poison_released = true;
  ShardedUnits engine(layers.units(), ranks, options);
  const at::Tensor rows = random_tensor({kRows, kWidth}, 1);
  const int64_t parts = ranks.dp->size() * the.micro_batches;
  for (int step = 0; step < 2; ++step) {
    for (int micro = 0; micro < the.micro_batches; ++micro) {
      const int64_t part = micro * ranks.dp->size() + ranks.dp->rank();
      const at::Tensor own = rows.slice(0, part * kRows / parts, (part + 1) * kRows / parts);
      const at::Tensor loss =
          layers.run(engine, own, the.recompute).square().sum() / static_cast<double>(kRows);
      engine.backward(loss,
                      micro + 1 == the.micro_batches ? MicroBatchPlace::kLast : MicroBatchPlace::kNotLast);
    }
    engine.update({.lr = 1e-2});
  }
  std::map<std::string, at::Tensor> masters;
  for (const auto& parameter : engine.gather_masters())
    masters[parameter.name] = parameter.tensor.detach().clone();
  return masters;
}

std::map<std::string, at::Tensor> train_alone(const Case& the) {
  const auto alone = comm::make_fake_communicator({});
  Case one = the;
  one.policy = Ddp();
  one.micro_batches = 1;
  return train(one, DataParallel::one_axis(*alone));
}

void expect_equal_to_one_rank(const Case& the, const ShardedModelOptions& options = {}) {
  const auto wanted = train_alone(the);
  run_ranks(the.world, [&](std::shared_ptr<comm::Communicator> world) {
    const comm::DeviceMesh mesh(world, the.policy.mesh());
    const auto found = train(the, DataParallel::of(mesh), options);
    ASSERT_EQ(found.size(), wanted.size());
    const double tolerance = the.dtype == at::kFloat ? 2e-5 : 2e-2;
    for (const auto& [name, tensor] : wanted) {
      apus::testing::expect_close(found.at(name), tensor, {tolerance, 0.0}, the.policy.name + " " + name);
    }
  });
}

class AtenOnlyModule : public ::testing::TestWithParam<Recompute> {};

TEST_P(AtenOnlyModule, TrainsAsOnOneRankUnderEveryPolicy) {
  // pitfalls.md rows 4, 5, 13, 14, 15, 29: tied, unused, empty and tiny parameters, accumulation, recompute
  for (const ShardPolicy& policy :
       {ShardPolicy(Ddp()), ShardPolicy(Zero1()), ShardPolicy(Zero2()), ShardPolicy(Zero3()),
        ShardPolicy(Zero3(2)), ShardPolicy(Fsdp({.reshard_after_forward = false})),
        ShardPolicy(HybridFsdp({.replicate = 2}))}) {
    expect_equal_to_one_rank({.policy = policy, .world = 4, .recompute = GetParam(), .micro_batches = 3});
  }
}

INSTANTIATE_TEST_SUITE_P(Recompute, AtenOnlyModule, ::testing::Values(Recompute::kNone, Recompute::kBlock));

TEST(ShardedUnits, MixedDtypesInAUnitGetGroupsOfTheirOwn) {
  // pitfalls.md rows 12 and 17
  expect_equal_to_one_rank({.policy = Zero3(), .world = 3, .dtype = at::kBFloat16});
  expect_equal_to_one_rank({.policy = Zero2(), .world = 2, .dtype = at::kBFloat16});
}

TEST(ShardedUnits, WithoutOverlapTheNumbersAreTheSame) {
  expect_equal_to_one_rank({.policy = Zero3(), .world = 2}, {.overlap_comm = false});
  expect_equal_to_one_rank({.policy = Zero2(), .world = 2}, {.bucket_elements = 100, .overlap_comm = false});
}

TEST(ShardedUnits, EveryRankMakesTheSameCollectivesInTheSameOrder) {
  // pitfalls.md row 24; a mismatch would be named: "rank 1 is in reduce_scatter ..., others in all_gather
  // ..."
  for (const ShardPolicy& policy : {ShardPolicy(Zero1()), ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    run_ranks(3, [&](std::shared_ptr<comm::Communicator> world) {
      const auto checked = comm::make_checked_communicator(world);
      train({.policy = policy, .world = 3}, DataParallel::one_axis(*checked));
    });
  }
}

TEST(ShardedUnits, SeveralTapedPassesMayPrecedeOneBackward) {
  // The two answers of a preference pair, run one after the other.
  const auto gradients = [](comm::Communicator& dp, const ShardPolicy& policy) {
    const Layers layers;
    ShardedUnits engine(layers.units(), DataParallel::one_axis(dp),
                        {.policy = policy, .poison_released = true});
    const at::Tensor first = layers.run(engine, random_tensor({2, kWidth}, 5), Recompute::kNone);
    const at::Tensor second = layers.run(engine, random_tensor({3, kWidth}, 6), Recompute::kBlock);
    engine.backward((first.sum() * second.sum()) / dp.size(), MicroBatchPlace::kLast);
    return engine.update({.lr = 0.0});
  };
  const auto alone = comm::make_fake_communicator({});
  const double wanted = gradients(*alone, Ddp());
  run_ranks(2, [&](std::shared_ptr<comm::Communicator> world) {
    EXPECT_NEAR(gradients(*world, Zero3()), wanted, 1e-5 * wanted);
    EXPECT_NEAR(gradients(*world, Zero2()), wanted, 1e-5 * wanted);
  });
}

TEST(ShardedUnits, TouchingAShardedParameterOutsideItsUnitThrowsItsName) {
  run_ranks(2, [](std::shared_ptr<comm::Communicator> world) {
    const Layers layers;
    ShardedUnits engine(layers.units(), DataParallel::one_axis(*world), {.policy = Zero3()});
    try {
      at::linear(random_tensor({1, kWidth}, 1), layers.weights[2]);
      FAIL() << "nothing was thrown";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("(layer2)"), std::string::npos) << error.what();
    }
    // A unit that reads a parameter which it does not list is refused in the same way.
    EXPECT_THROW(engine.run(0, random_tensor({1, kWidth}, 1),
                            [&](const at::Tensor& in) { return at::linear(in, layers.weights[2]); }),
                 c10::Error);
  });
}

TEST(ShardedUnits, ARankWhoseLossHasNoTapeMakesTheCollectivesOfItsPeers) {
  // pitfalls.md rows 24 and 42
  for (const ShardPolicy& policy : {ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    run_ranks(3, [&](std::shared_ptr<comm::Communicator> world) {
      const Layers layers;
      ShardedUnits engine(layers.units(), DataParallel::one_axis(*world), {.policy = policy});
      std::vector<at::Tensor>
          graphs;  // outlive their micro-batch: what a rank holds must not change its collectives
      for (int micro = 0; micro < 2; ++micro) {
        const at::Tensor out = layers.run(engine, random_tensor({2, kWidth}, 5), Recompute::kNone);
        graphs.push_back(out);
        const at::Tensor loss = world->rank() == micro ? at::zeros({}) : out.square().sum();
        engine.backward(loss, micro == 1 ? MicroBatchPlace::kLast : MicroBatchPlace::kNotLast);
      }
      EXPECT_GT(engine.update({.lr = 1e-3}), 0.0);
    });
  }
}

TEST(ShardedUnits, ForwardsWithoutBackwardLeaveNothingBehind) {
  run_ranks(2, [](std::shared_ptr<comm::Communicator> world) {
    const Layers layers;
    ShardedUnits engine(layers.units(), DataParallel::one_axis(*world), {.policy = Zero3()});
    const at::Tensor rows = random_tensor({2, kWidth}, 5);
    at::Tensor before;
    {
      at::NoGradGuard no_grad;
      before = layers.run(engine, rows, Recompute::kNone);
      EXPECT_TRUE(layers.run(engine, rows, Recompute::kNone).equal(before)) << "an evaluation twice";
    }
    engine.backward(layers.run(engine, rows, Recompute::kNone).sum(), MicroBatchPlace::kLast);
    engine.update({.lr = 1e-2});
    at::NoGradGuard no_grad;
    EXPECT_FALSE(layers.run(engine, rows, Recompute::kNone).equal(before))
        << "an update is seen by the next pass";
  });
}

TEST(ShardedUnits, AUnitOfEmptyParametersRuns) {
  // pitfalls.md row 13
  run_ranks(2, [](std::shared_ptr<comm::Communicator> world) {
    const at::Tensor none = at::empty({0, kWidth}).set_requires_grad(true);
    const at::Tensor weight = random_leaf({kWidth}, 3);
    ModelUnits model;
    model.units = {{"empty", {{"none", none}}}, {"full", {{"weight", weight}}}};
    ShardedUnits engine(model, DataParallel::one_axis(*world), {.policy = Zero3()});
    at::Tensor x = engine.run(0, random_tensor({2, kWidth}, 5), [&](const at::Tensor& in) {
      return in + at::linear(in, none).sum();
    });
    x = engine.run(1, x, [&](const at::Tensor& in) { return in * weight; });
    engine.backward(x.sum(), MicroBatchPlace::kLast);
    EXPECT_GT(engine.update({.lr = 1e-3}), 0.0);
  });
}

TEST(ShardedUnits, RanksWithDifferentModelsAreToldAtStart) {
  std::atomic<int> told = 0;
  run_ranks(2, [&](std::shared_ptr<comm::Communicator> world) {
    Layers layers;
    if (world->rank() == 1) layers.weights[3].set_requires_grad(false);
    try {
      ShardedUnits engine(layers.units(), DataParallel::one_axis(*world), {.policy = Zero3()});
    } catch (const ConfigError&) {
      ++told;
    }
  });
  EXPECT_EQ(told, 2);
}

TEST(ShardedUnits, RankZerosValuesAreEverybodys) {
  run_ranks(3, [](std::shared_ptr<comm::Communicator> world) {
    for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero3())}) {
      const Layers layers;
      {
        at::NoGradGuard no_grad;
        layers.weights[1].fill_(world->rank() + 7.0);
      }
      ShardedUnits engine(layers.units(), DataParallel::one_axis(*world), {.policy = policy});
      for (const auto& parameter : engine.gather_masters()) {
        if (parameter.name == "layer1.weight") EXPECT_EQ(parameter.tensor.min().item<double>(), 7.0);
      }
    }
  });
}

TEST(ShardedUnits, FrozenPartsAreShardedAndComeBackWhole) {
  // pitfalls.md row 16: frozen weights were missing from what was saved
  run_ranks(2, [](std::shared_ptr<comm::Communicator> world) {
    Layers layers;
    for (auto& weight : layers.weights) weight.set_requires_grad(false);
    ShardedUnits engine(layers.units(), DataParallel::one_axis(*world), {.policy = Zero3()});
    EXPECT_EQ(engine.frozen_groups().size(), static_cast<size_t>(kLayers));
    EXPECT_EQ(engine.groups().size(), 1U) << "small trainable parts share one group, whole on every rank";
    std::map<std::string, at::Tensor> all;
    for (const auto& parameter : engine.gather_all()) all[parameter.name] = parameter.tensor;
    EXPECT_EQ(all.size(), 4U + 4U + 3U);
    EXPECT_TRUE(all.at("layer2.weight").equal(random_leaf({kWidth, kWidth}, 12)));
  });
}

TEST(ShardedUnits, FrozenPartsTakeTheirDtypeShardedOrNot) {
  run_ranks(2, [](std::shared_ptr<comm::Communicator> world) {
    for (const Placement placement : {Placement::kReplicated, Placement::kSharded}) {
      const Layers layers;
      layers.weights[1].set_requires_grad(false);
      ShardedUnits engine(layers.units(), DataParallel::one_axis(*world),
                          {.policy = Zero2(), .frozen_dtype = at::kBFloat16, .frozen = placement});
      EXPECT_EQ(layers.weights[1].scalar_type(), at::kBFloat16);
      for (const auto& parameter : engine.gather_all()) {
        if (parameter.name != "layer1.weight") continue;
        EXPECT_TRUE(parameter.tensor.equal(random_leaf({kWidth, kWidth}, 11).to(at::kBFloat16)));
      }
    }
  });
}

TEST(ShardedUnits, ShardedTrainablePartsNeedAPolicyThatShardsThem) {
  const auto alone = comm::make_fake_communicator({});
  const Layers layers;
  EXPECT_THROW(ShardedUnits(layers.units(), DataParallel::one_axis(*alone),
                            {.policy = Zero2(), .trainable = Placement::kSharded}),
               ConfigError);
}

}  // namespace
}  // namespace apus::parallel
