// Bugs of shared/pitfalls.md on a gradient's way from the tape to the update; the row ends a test's name.
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <set>
#include <string>

#include "apus/comm/decorators.h"
#include "apus/comm/fake_communicator.h"
#include "tests/support/chosen_gradients.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;

constexpr auto kNotLast = MicroBatchPlace::kNotLast;
constexpr auto kLast = MicroBatchPlace::kLast;

std::vector<at::Tensor> three_leaves(at::ScalarType dtype = at::kFloat) {
  return {filled_leaf({5, 7}, 1.0, dtype), filled_leaf({2000}, 1.0, dtype), filled_leaf({3}, 1.0, dtype)};
}

TEST(Gradients, OfAllMicroBatchesAddUp_Pitfall4) {
  for (const bool deterministic : {false, true}) {
    under_every_policy(2, [&](const ShardPolicy& policy, const DataParallel& ranks) {
      ChosenGradients job(three_leaves(), ranks, {.policy = policy, .deterministic = deterministic});
      job.micro_batch(1.0, kNotLast);
      job.micro_batch(10.0, kNotLast);
      job.micro_batch(100.0, kLast);
      expect_gradients(job.engine(), 2 * 111.0, policy.name);
      job.engine().update({.lr = 1e-3});
      job.micro_batch(3.0, kLast);
      expect_gradients(job.engine(), 2 * 3.0, policy.name + ", the next step");
    });
  }
}

TEST(Gradients, OfTheLastMicroBatchReachThePeersToo_Pitfall5) {
  for (const bool deterministic : {false, true}) {
    under_every_policy(4, [&](const ShardPolicy& policy, const DataParallel& ranks) {
      ChosenGradients job(three_leaves(), ranks, {.policy = policy, .deterministic = deterministic});
      const double own = ranks.dp->rank() + 1;
      job.micro_batch(own, kNotLast);
      job.micro_batch(1000 * own, kLast);
      expect_gradients(job.engine(), 1001 * (1 + 2 + 3 + 4), policy.name);
    });
  }
}

/// Four units that read one weight beside their own: twice in the first, once in the third and the last.
struct SharedWeight {
  SharedWeight(const DataParallel& ranks, const ShardedModelOptions& options)
      : engine(units(), ranks, options) {}

  ModelUnits units() const {
    ModelUnits model;
    for (size_t unit = 0; unit < 4; ++unit) {
      const std::string name = "own" + std::to_string(unit);
      model.units.push_back({"unit" + std::to_string(unit), {{name, own[unit]}}});
      if (unit != 1) model.units.back().parameters.push_back({"shared", shared});
    }
    return model;
  }

  void micro_batch(Recompute recompute, MicroBatchPlace place) {
    at::Tensor loss = at::zeros({});
    for (size_t unit = 0; unit < 4; ++unit) {
      loss = engine.run(
          unit, loss,
          [this, unit](const at::Tensor& sum) {
            at::Tensor result = sum + own[unit].sum();
            if (unit != 1) result = result + shared.sum();
            return unit == 0 ? result + 10 * shared.sum() : result;
          },
          recompute);
    }
    engine.backward(loss, place);
  }

  at::Tensor shared = filled_leaf({300}, 1.0);
  std::vector<at::Tensor> own{filled_leaf({4}, 1.0), filled_leaf({5}, 1.0), filled_leaf({6}, 1.0),
                              filled_leaf({7}, 1.0)};
  ShardedUnits engine;
};

TEST(Gradients, OfAWeightWithSeveralUsesTravelOnceAfterTheLast_Pitfall9) {
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
      run_ranks(2, [&](std::shared_ptr<comm::Communicator> plain) {
        const auto log = comm::CommLog::create();
        const auto recorded = comm::make_recorded_communicator(plain, log);
        SharedWeight job(DataParallel::one_axis(*recorded), {.policy = policy, .bucket_elements = 1});
        log->clear();
        job.micro_batch(recompute, kLast);
        const auto reductions =
            log->count(comm::OpKind::kReduceScatter) + log->count(comm::OpKind::kAllReduce);
        EXPECT_EQ(reductions, 4) << policy.name << ": one a group";
        for (const auto& [name, gradient] : step_gradients(job.engine)) {
          const double wanted = 2 * (name == "shared" ? 13.0 : 1.0);
          EXPECT_TRUE(gradient.eq(wanted).all().item<bool>()) << policy.name << ", " << name;
        }
      });
    }
  }
}

/// No element, one, three; a transposed leaf; and again none, so that a unit's group is empty wherever it
/// lies.
std::vector<at::Tensor> odd_leaves() {
  const at::Tensor transposed = random_tensor({7, 5}, 1).t().detach().set_requires_grad(true);
  return {filled_leaf({0, 12}, 0.0), random_leaf({1}, 2), random_leaf({3}, 3), transposed,
          filled_leaf({0}, 0.0)};
}

std::map<std::string, at::Tensor> train_odd_leaves(const ShardPolicy& policy, const DataParallel& ranks) {
  ChosenGradients job(odd_leaves(), ranks, {.policy = policy, .bucket_elements = 2, .poison_released = true});
  const std::vector<at::Tensor> initial = odd_leaves();
  for (const auto& parameter : job.engine().gather_masters()) {
    const at::Tensor& wanted = initial.at(std::stoul(parameter.name.substr(1)));
    EXPECT_TRUE(parameter.tensor.equal(wanted.detach())) << policy.name << " starts with " << parameter.name;
  }
  for (int step = 0; step < 2; ++step) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& leaf : odd_leaves())
      gradients.push_back(random_tensor(leaf.sizes(), 10 + step) / ranks.dp->size());
    job.micro_batch(gradients, kLast);
    job.engine().update({.lr = 1e-2});
  }
  std::map<std::string, at::Tensor> masters;
  for (const auto& parameter : job.engine().gather_masters())
    masters[parameter.name] = parameter.tensor.clone();
  return masters;
}

TEST(Gradients, OfEmptyTinyAndStridedParametersFindTheirPlace_Pitfall13) {
  const auto alone = comm::make_fake_communicator({});
  const auto wanted = train_odd_leaves(Ddp(), DataParallel::one_axis(*alone));
  under_every_policy(4, [&](const ShardPolicy& policy, const DataParallel& ranks) {
    const auto found = train_odd_leaves(policy, ranks);
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [name, tensor] : wanted) {
      expect_close(found.at(name), tensor, {1e-6, 0.0}, policy.name + " " + name);
    }
  });
}

TEST(GradientNorm, CountsReplicasOnce_Pitfall20) {
  for (const bool deterministic : {false, true}) {
    under_every_policy(4, [&](const ShardPolicy& policy, const DataParallel& ranks) {
      ChosenGradients job({filled_leaf({5000}, 1.0), filled_leaf({30}, 1.0)}, ranks,
                          {.policy = policy, .deterministic = deterministic});
      job.micro_batch(0.25, kLast);
      EXPECT_NEAR(job.engine().update({.lr = 1e-3}), std::sqrt(5030.0), 1e-9) << policy.name;
    });
  }
}

TEST(Clipping, ScalesWhatTheOptimizerSees_Pitfall23) {
  under_every_policy(4, [](const ShardPolicy& policy, const DataParallel& ranks) {
    // No padding: every owned element belongs to the parameter.
    ChosenGradients job({filled_leaf({4, 1024}, 1.0)}, ranks, {.policy = policy});
    job.micro_batch(0.25, kLast);
    const double norm = job.engine().update({.lr = 1e-3, .beta1 = 0.9, .max_grad_norm = 0.5});
    EXPECT_NEAR(norm, 64.0, 1e-9) << "the norm is that before clipping";
    for (const GroupState& state : job.engine().optimizer_states()) {
      EXPECT_NEAR(state.exp_avg.min().item<double>(), 0.1 * 0.5 / 64, 1e-9) << policy.name;
      EXPECT_NEAR(state.exp_avg.max().item<double>(), 0.1 * 0.5 / 64, 1e-9) << policy.name;
    }
  });
}

/// One layer after another; the ranks differ in what their rows leave to differentiate.
struct UnevenRanks {
  UnevenRanks(const DataParallel& ranks, const ShardedModelOptions& options)
      : engine(units(), ranks, options) {}

  ModelUnits units() const {
    ModelUnits model;
    for (size_t unit = 0; unit < 5; ++unit) {
      model.units.push_back({"unit" + std::to_string(unit), {{"w" + std::to_string(unit), weights[unit]}}});
    }
    return model;
  }

  /// Rank 0 uses all; rank 1 has no rows; rank 2's loss has no tape; rank 3's units ignore their parameters.
  void micro_batch(int rank, Recompute recompute, MicroBatchPlace place) {
    at::Tensor x = random_tensor({rank == 1 ? 0 : 2, 6}, 4);
    for (size_t unit = 0; unit < 5; ++unit) {
      x = engine.run(
          unit, x,
          [this, unit, rank](const at::Tensor& in) {
            return rank == 3 ? in * 2 : in.matmul(weights[unit]).tanh();
          },
          recompute);
    }
    engine.backward(rank == 2 ? at::zeros({}) : x.square().sum(), place);
  }

  std::vector<at::Tensor> weights{random_leaf({6, 6}, 1), random_leaf({6, 6}, 2), random_leaf({6, 6}, 3),
                                  random_leaf({6, 6}, 5), random_leaf({6, 6}, 6)};
  ShardedUnits engine;
};

TEST(Collectives, AreTheSameOnEveryRankWhateverItsRows_Pitfall24) {
  for (const ShardPolicy& policy : policies_for(4)) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
      std::mutex mutex;
      std::set<std::string> made;  // the operations of each rank as text: one line each, without group ranks
      run_ranks(4, [&](std::shared_ptr<comm::Communicator> plain) {
        const auto log = comm::CommLog::create();
        std::shared_ptr<comm::Communicator> world = comm::make_checked_communicator(plain);
        world = comm::make_recorded_communicator(world, log);
        const comm::DeviceMesh mesh(world, policy.mesh());
        UnevenRanks job(DataParallel::of(mesh), {.policy = policy, .bucket_elements = 40});
        log->clear();
        job.micro_batch(plain->rank(), recompute, kNotLast);
        job.micro_batch((plain->rank() + 1) % 4, recompute, kLast);
        EXPECT_GT(job.engine.update({.lr = 1e-3}), 0.0) << policy.name;
        std::string lines;
        for (const comm::OpRecord& record : log->records())
          lines += record.group + " " + record.info.text() + "\n";
        const std::lock_guard lock(mutex);
        made.insert(lines);
      });
      EXPECT_EQ(made.size(), 1U) << policy.name << ":\n" << *made.begin() << "and\n" << *made.rbegin();
      EXPECT_FALSE(made.begin()->empty());
    }
  }
}

TEST(Gradients, ThatAreStridedOrConvertedReachThePeers_Pitfall25) {
  for (const at::ScalarType travels : {at::kFloat, at::kBFloat16}) {
    under_every_policy(4, [&](const ShardPolicy& policy, const DataParallel& ranks) {
      ChosenGradients job({filled_leaf({4, 6}, 1.0), filled_leaf({9}, 1.0)}, ranks,
                          {.policy = policy, .reduce_dtype = travels});
      const double own = ranks.dp->rank() + 1;
      // Row-major in the other direction; and one number seen as nine.
      const at::Tensor transposed = (at::arange(24).view({6, 4}).t() * own).to(at::kFloat);
      job.micro_batch({transposed, at::full({}, own)}, kLast);
      const auto gradients = step_gradients(job.engine());
      EXPECT_TRUE(gradients.at("w0").equal((at::arange(24).view({6, 4}).t() * 10).to(at::kFloat)))
          << policy.name;
      EXPECT_TRUE(gradients.at("w1").equal(at::full({9}, 10.0))) << policy.name;
    });
  }
}

TEST(Gradients, OfBfloat16ParametersAddUpInFp32_Pitfall37) {
  constexpr double kSmall = 1.0 / 512;  // 1 + kSmall is no bf16
  under_every_policy(2, [](const ShardPolicy& policy, const DataParallel& ranks) {
    ChosenGradients job(three_leaves(at::kBFloat16), ranks, {.policy = policy});
    job.micro_batch(1.0, kNotLast);
    job.micro_batch(kSmall, kLast);
    expect_gradients(job.engine(), 2 * (1.0 + kSmall), policy.name + ", over micro-batches");
    job.engine().update({.lr = 1e-3});
    job.micro_batch(ranks.dp->rank() == 0 ? 1.0 : kSmall, kLast);
    expect_gradients(job.engine(), 1.0 + kSmall, policy.name + ", over ranks");
  });
}

}  // namespace
}  // namespace apus::parallel
