// States on the host: the bits of the same engine without offload, under every policy.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "apus/comm/device_mesh.h"
#include "apus/comm/fake_communicator.h"
#include "tests/support/late_communicator.h"
#include "tests/support/offload_case.h"
#include "tests/support/rank_threads.h"
#include "tests/support/residencies.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;
using memory::OptimizerStates;
using memory::Residency;
using memory::StateResidency;

std::string text(const OffloadRun& run, int world) {
  const StateResidency& lies = run.policy.residency;
  const auto place = [](Residency residency) { return residency == Residency::kHost ? "h" : "d"; };
  return detail::concat(run.policy.name, " on ", world, " ranks, ", c10::toString(run.dtype), ", ",
                        place(lies.optimizer), place(lies.gradients), place(lies.parameters));
}

/// What a policy may put on the host.
std::vector<StateResidency> residencies_of(const ShardPolicy& policy) {
  if (policy.param_shard) return {kOptimizer, kGradients, kBoth, kAll, kParameters};
  if (policy.grad_shard) return {kOptimizer, kGradients};
  return {kOptimizer};
}

/// Each run, and each of what its policy may put on the host, against the run without, on one set of ranks.
void expect_same_bits(int world, const std::vector<OffloadRun>& runs) {
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> plain) {
    for (OffloadRun run : runs) {
      const comm::DeviceMesh mesh(plain, run.policy.mesh());
      const DataParallel ranks = DataParallel::of(mesh);
      const OffloadResult wanted = train_offloaded(run, ranks);
      for (const StateResidency& residency : residencies_of(run.policy)) {
        run.policy.residency = residency;
        train_offloaded(run, ranks).expect_equal_to(wanted, text(run, world));
      }
    }
  });
}

class Offload : public ::testing::TestWithParam<int> {};

TEST_P(Offload, KeepsTheBitsOfZero2AndZero3) {
  // pitfalls.md rows 6 and 11: all micro-steps count, and pieces of an update share its step
  std::vector<OffloadRun> runs;
  for (const ShardPolicy& policy : {ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) runs.push_back({policy, dtype});
  }
  expect_same_bits(GetParam(), runs);
}

TEST_P(Offload, KeepsTheBitsOfBfloat16States) {
  std::vector<OffloadRun> runs;
  for (const ShardPolicy& policy : {ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    OffloadRun run{policy, at::kBFloat16};
    run.options.optimizer_states = OptimizerStates::kBf16;
    run.options.grad_accum_dtype = at::kBFloat16;
    runs.push_back(run);
  }
  expect_same_bits(GetParam(), runs);
}

TEST_P(Offload, KeepsTheBitsOfDeterministicMode) {
  std::vector<OffloadRun> runs;
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    OffloadRun run{policy};
    run.options.deterministic = true;
    runs.push_back(run);
  }
  expect_same_bits(GetParam(), runs);
}

TEST_P(Offload, KeepsTheBitsOfAdaptersOverABaseOnTheHost) {
  const auto trains = OffloadedLayers::Trains::kBiasesAlone;
  expect_same_bits(GetParam(),
                   {{.policy = Zero2(), .trains = trains}, {.policy = Zero3(), .trains = trains}});
}

TEST_P(Offload, ASkippedStepChangesNothingAndDoesNotCount) {
  // pitfalls.md row 10
  std::vector<OffloadRun> runs;
  for (const int64_t skipped : {0, 1}) {
    runs.push_back({.policy = Zero2(), .skipped_step = skipped});
    runs.push_back({.policy = Zero3(), .skipped_step = skipped});
  }
  expect_same_bits(GetParam(), runs);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Offload, ::testing::Values(1, 2, 3));

TEST(OffloadPolicies, OthersKeepTheirBitsToo) {
  OffloadRun narrow{Zero2(), at::kBFloat16};
  narrow.options.reduce_dtype = at::kBFloat16;
  narrow.options.bucket_elements = 2000;
  OffloadRun waits{Zero3()};
  waits.options.overlap_comm = false;
  expect_same_bits(2, {{Ddp()},
                       {Zero1(), at::kBFloat16},
                       {Fsdp({.reshard_after_forward = false})},
                       {Fsdp({.sharding = FsdpSharding::kShardGradOp}), at::kBFloat16},
                       narrow,
                       waits});
}

TEST(OffloadPolicies, ReplicasAndSecondaryPartsKeepTheirBits) {
  OffloadRun deterministic{HybridFsdp({.replicate = 2})};
  deterministic.options.deterministic = true;
  OffloadRun narrow{HybridFsdp({.replicate = 2}), at::kBFloat16};
  narrow.options.grad_accum_dtype = at::kBFloat16;
  expect_same_bits(
      4, {{HybridFsdp({.replicate = 2})}, {Zero3(/*secondary_partition=*/2)}, deterministic, narrow});
}

TEST(OffloadOrder, EveryRankMakesTheSameCollectivesInTheSameOrder) {
  // pitfalls.md row 24
  for (const StateResidency& residency : {kOptimizer, kGradients, kAll}) {
    run_ranks(3, [&](std::shared_ptr<comm::Communicator> world) {
      const auto checked = comm::make_checked_communicator(world);
      OffloadRun run{residency == kAll ? ShardPolicy(Zero3()) : ShardPolicy(Zero2())};
      run.policy.residency = residency;
      run.options.bucket_elements = 1;
      train_offloaded(run, DataParallel::one_axis(*checked));
    });
  }
}

TEST(OffloadOrder, ParametersAreWaitedForHoweverLateTheyArrive) {
  for (const StateResidency& residency : {kOptimizer, kAll}) {
    run_ranks(2, [&](std::shared_ptr<comm::Communicator> plain) {
      OffloadRun run{residency == kAll ? ShardPolicy(Zero3()) : ShardPolicy(Zero2())};
      const OffloadResult wanted = train_offloaded(run, DataParallel::one_axis(*plain));
      run.policy.residency = residency;
      LateCommunicator late(plain, Late::kResult);
      train_offloaded(run, DataParallel::one_axis(late)).expect_equal_to(wanted, text(run, 2));
    });
  }
}

/// Copies one engine's states into another's, as a checkpoint does.
void load(ShardedUnits& from, ShardedUnits& to) {
  const std::vector<GroupState> saved = from.optimizer_states(), loaded = to.optimizer_states();
  ASSERT_EQ(saved.size(), loaded.size());
  for (size_t index = 0; index < saved.size(); ++index) {
    EXPECT_EQ(saved[index].layout_fingerprint, loaded[index].layout_fingerprint);
    loaded[index].master.copy_(saved[index].master);
    loaded[index].exp_avg.copy_(saved[index].exp_avg);
    loaded[index].exp_avg_sq.copy_(saved[index].exp_avg_sq);
  }
  to.load_finished(from.updates());
}

/// A step, its states into an engine with another residency, and a step there.
OffloadResult train_across(OffloadRun run, const StateResidency& first, const StateResidency& second,
                           const DataParallel& ranks) {
  OffloadResult result;
  run.policy.residency = first;
  const OffloadedLayers layers, other;
  ShardedUnits saves(layers.units(), ranks, run.engine_options());
  take_step(layers, saves, run, 0, result);
  run.policy.residency = second;
  ShardedUnits loads(other.units(), ranks, run.engine_options());
  load(saves, loads);
  take_step(other, loads, run, 1, result);
  EXPECT_EQ(loads.updates(), 2);
  read_states(loads, result);
  return result;
}

TEST(OffloadStates, LoadWithoutOffloadAndTheOtherWayRound) {
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    run_ranks(2, [&](std::shared_ptr<comm::Communicator> world) {
      const DataParallel ranks = DataParallel::one_axis(*world);
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        const OffloadRun run{policy, dtype};
        const StateResidency offloaded = residencies_of(policy).size() > 3 ? kAll : kOptimizer;
        const OffloadResult wanted = train_across(run, {}, {}, ranks);
        train_across(run, offloaded, {}, ranks).expect_equal_to(wanted, "saved from the host");
        train_across(run, {}, offloaded, ranks).expect_equal_to(wanted, "loaded to the host");
      }
    });
  }
}

TEST(OffloadStates, AllParametersCanBeReadAfterAnUpdate) {
  run_ranks(2, [&](std::shared_ptr<comm::Communicator> world) {
    const auto read = [&](const StateResidency& residency) {
      OffloadRun run{Zero3()};
      run.policy.residency = residency;
      const OffloadedLayers layers;
      ShardedUnits engine(layers.units(), DataParallel::one_axis(*world), run.engine_options());
      OffloadResult result;
      take_step(layers, engine, run, 0, result);
      for (const auto& parameter : engine.gather_all())
        result.tensors[parameter.name] = parameter.tensor.clone();
      return result;
    };
    const OffloadResult found = read(kAll);
    EXPECT_EQ(found.tensors.size(), 8U);
    found.expect_equal_to(read({}), "gather_all");
  });
}

/// An engine alone, with a gradient.
struct UnderWay {
  UnderWay() {
    run.policy.residency = kAll;
    engine =
        std::make_unique<ShardedUnits>(layers.units(), DataParallel::one_axis(*alone), run.engine_options());
    engine->backward(layers.run(*engine, rows, Recompute::kNone).square().sum(), MicroBatchPlace::kLast);
  }

  std::unique_ptr<comm::Communicator> alone = comm::make_fake_communicator({});
  OffloadRun run{Zero3()};
  OffloadedLayers layers;
  at::Tensor rows = random_tensor({2, OffloadedLayers::kWidth}, 1);
  std::unique_ptr<ShardedUnits> engine;
};

TEST(OffloadEngine, MayGoAwayWithAnUpdateUnderWay) {
  UnderWay job;
  EXPECT_GT(job.engine->update({.lr = 1e-2}), 0.0);
  job.engine.reset();
}

TEST(OffloadEngine, AFailureOnTheHostComesOutOfTheNextCall) {
  UnderWay job;
  const auto expect_told = [](const auto& call) {
    try {
      call();
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("updating parameters on the host failed: group"), std::string::npos) << text;
      EXPECT_NE(text.find("learning rate is -1"), std::string::npos) << text;
    }
  };
  expect_told([&] {
    job.engine->update({.lr = -1.0});
    job.engine->finish_update();
  });
  expect_told([&] { job.layers.run(*job.engine, job.rows, Recompute::kNone); });
}

}  // namespace
}  // namespace apus::parallel
