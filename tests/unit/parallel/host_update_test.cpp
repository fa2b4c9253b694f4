#include "apus/parallel/host_update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apus/base/error.h"
#include "apus/base/philox.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using memory::ParamGroup;
using memory::Residency;
using testing::random_leaf;
using testing::random_tensor;

struct Case {
  memory::StateResidency residency = {.optimizer = Residency::kHost};
  at::ScalarType compute = at::kFloat;
  memory::OptimizerStates states = memory::OptimizerStates::kFp32;
  at::ScalarType grads = at::kFloat;
};

std::unique_ptr<ParamGroup> make_group(const Case& the) {
  const bool shards = the.residency.parameters == Residency::kHost;
  return std::make_unique<ParamGroup>(
      std::vector<memory::GroupParameter>{{"w", random_leaf({37, 50}, 1)}, {"b", random_leaf({300}, 2)}},
      memory::ParamGroupOptions{.name = "group7",
                                .shard_parameters = shards,
                                .shard_optimizer = true,
                                .shard_gradients = true,
                                .compute_dtype = the.compute,
                                .grad_dtype = the.grads,
                                .states = the.states,
                                .residency = the.residency});
}

std::vector<optim::Segment> segments_of(const ParamGroup& group) {
  std::vector<optim::Segment> segments;
  for (size_t index = 0; index < group.parameters().size(); ++index) {
    const memory::ElementRange range = group.layout().range_of(static_cast<int64_t>(index));
    segments.push_back({.begin = range.begin,
                        .end = range.end,
                        .weight_decay = index == 0 ? 1.0 : 0.0,
                        .rounding_key = philox_key(42, group.parameters()[index].name)});
  }
  return segments;
}

at::Tensor gradient(const ParamGroup& group, uint64_t seed) {
  return random_tensor({group.layout().padded_elements()}, seed);
}

void reduce(ParamGroup& group, const at::Tensor& sum) {
  group.begin_reduce();
  group.finish_reduce(sum);
}

optim::GradScaling scaling() {
  return {.clip_factor = at::full({1}, 0.5f), .found_inf = at::full({1}, 0.0f)};
}

/// Two steps of two micro-batches on the device's side: what the host must reproduce.
std::unique_ptr<ParamGroup> updated_at_once(Case the) {
  the.residency = {};
  auto group = make_group(the);
  for (int64_t step = 1; step <= 2; ++step) {
    for (uint64_t micro = 0; micro < 2; ++micro) reduce(*group, gradient(*group, 10 * step + micro));
    optim::adamw_step({group->masters(), group->exp_avg(), group->exp_avg_sq()}, group->reduced_grad(),
                      group->has_masters() ? group->own_params() : at::Tensor(), segments_of(*group),
                      {.lr = 1e-2, .step = step}, scaling());
    group->reset_grads();
  }
  return group;
}

std::unique_ptr<ParamGroup> updated_on_host(const Case& the, int64_t piece, double share) {
  auto group = make_group(the);
  HostUpdate host({{group.get(), segments_of(*group), {}}},
                  {.piece_elements = piece, .threads = 2, .device_share = share});
  const bool adds = the.residency.gradients == Residency::kHost;
  for (int64_t step = 1; step <= 2; ++step) {
    for (uint64_t micro = 0; micro < 2; ++micro) {
      const at::Tensor sum = gradient(*group, 10 * step + micro);
      if (adds) host.add(0, sum, micro == 0 ? memory::SumStart::kOverwrite : memory::SumStart::kAdd);
      if (!adds) reduce(*group, sum);
    }
    if (!adds && step == 1) host.fetch(0);  // in the second step start() does
    host.start({.lr = 1e-2, .step = step}, scaling());
    host.end_step();
    if (!adds) group->reset_grads();
  }
  host.finish(0, memory::CopyStream(at::kCPU));
  host.settle();
  return group;
}

void expect_same_bits(const Case& the) {
  const auto wanted = updated_at_once(the);
  for (const auto& [piece, share] : {std::pair{1000, 0.0}, {1 << 20, 0.0}, {300, 0.4}, {1000, 1.0}}) {
    const auto found = updated_on_host(the, piece, share);
    EXPECT_TRUE(found->masters().equal(wanted->masters())) << piece << " " << share;
    EXPECT_TRUE(found->exp_avg().equal(wanted->exp_avg())) << piece << " " << share;
    EXPECT_TRUE(found->exp_avg_sq().equal(wanted->exp_avg_sq())) << piece << " " << share;
    EXPECT_TRUE(found->own_params().equal(wanted->own_params())) << piece << " " << share;
  }
}

TEST(HostUpdate, HasTheBitsOfAnUpdateAtOnceWhereverStatesLie) {
  constexpr Residency kHost = Residency::kHost, kDevice = Residency::kDevice;
  for (const Residency gradients : {kDevice, kHost}) {
    for (const Residency parameters : {kDevice, kHost}) {
      const memory::StateResidency residency{kHost, gradients, parameters};
      expect_same_bits({.residency = residency});
      expect_same_bits({.residency = residency, .compute = at::kBFloat16});
      expect_same_bits({.residency = residency, .compute = at::kHalf});
      expect_same_bits({.residency = residency,
                        .compute = at::kBFloat16,
                        .states = memory::OptimizerStates::kBf16,
                        .grads = at::kBFloat16});
    }
  }
}

/// A group with everything on the host, and who works on it.
class HostSums : public ::testing::Test {
 protected:
  std::unique_ptr<ParamGroup> group_ = make_group({.residency = {Residency::kHost, Residency::kHost}});
  HostUpdate host_{{{group_.get(), segments_of(*group_), {{0, 100, 0.0}}}}, {.threads = 1}};
};

TEST_F(HostSums, EveryAddendIsInTheSumThatIsMeasured) {
  // pitfalls.md row 6
  const int64_t elements = group_->layout().padded_elements();
  for (int micro = 0; micro < 5; ++micro) {
    host_.add(0, at::full({elements}, 1.0f),
              micro == 0 ? memory::SumStart::kOverwrite : memory::SumStart::kAdd);
  }
  host_.measure(0);
  host_.wait_added(0);
  EXPECT_EQ(group_->host_accumulator().min().item<double>(), 5.0);
  const std::vector<double>& sums = host_.block_sums(0);
  ASSERT_EQ(sums.size(), static_cast<size_t>(elements / 1024));
  EXPECT_EQ(sums[0], 25.0 * (1024 - 100)) << "a run that weighs nothing";
  EXPECT_EQ(sums[1], 25.0 * 1024);
}

TEST_F(HostSums, SayWhatTheyTook) {
  const int64_t elements = group_->layout().padded_elements();
  EXPECT_EQ(host_.times().adding_ms, 0.0);
  for (const auto start : {memory::SumStart::kOverwrite, memory::SumStart::kAdd})
    host_.add(0, at::full({elements}, 1.0f), start);
  host_.measure(0);
  host_.start({.lr = 1e-3, .step = 1}, {});
  EXPECT_GT(host_.times().adding_ms, 0.0);
  EXPECT_GT(host_.times().measuring_ms, 0.0);
  host_.start({.lr = 1e-3, .step = 2}, {});
  EXPECT_GT(host_.times().host_ms, 0.0);
  EXPECT_EQ(host_.times().adding_ms, 0.0) << "nothing was added since";
  host_.finish(0, memory::CopyStream(at::kCPU));
}

TEST_F(HostSums, TheNextStepsAddendsWaitForTheUpdateThatReadsThisStepsSum) {
  const int64_t elements = group_->layout().padded_elements();
  host_.add(0, at::full({elements}, 2.0f), memory::SumStart::kOverwrite);
  host_.start({.lr = 0.0, .beta1 = 0.0, .step = 1}, {});
  host_.end_step();
  host_.add(0, at::full({elements}, 100.0f), memory::SumStart::kOverwrite);
  EXPECT_EQ(group_->exp_avg()[0].item<double>(), 2.0);
}

TEST_F(HostSums, AFailureNamesTheGroup) {
  host_.add(0, at::full({group_->layout().padded_elements()}, 2.0f), memory::SumStart::kOverwrite);
  host_.start({.lr = std::nan("")}, {});
  try {
    host_.finish(0, memory::CopyStream(at::kCPU));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("updating parameters on the host failed: group7: learning rate is nan"),
              std::string::npos)
        << text;
  }
  EXPECT_THROW(host_.fetch(0), Error);
}

TEST(HostUpdate, PiecesHaveAtLeastOneElementAndSharesLieBetweenNoneAndAll) {
  EXPECT_THROW(HostUpdate({}, {.piece_elements = 0}), ConfigError);
  EXPECT_THROW(HostUpdate({}, {.device_share = -0.1}), ConfigError);
  EXPECT_THROW(HostUpdate({}, {.device_share = 1.5}), ConfigError);
}

TEST(HostUpdate, TheDeviceUpdatesAsManyPiecesAsItsShareSays) {
  const auto group = make_group({});
  HostUpdate host({{group.get(), segments_of(*group), {}}}, {.piece_elements = 128, .device_share = 0.25});
  for (int64_t step = 1; step <= 2; ++step) {
    reduce(*group, gradient(*group, 3));
    host.fetch(0);
    host.start({.lr = 1e-2, .step = step}, scaling());
    host.end_step();
    host.finish(0, memory::CopyStream(at::kCPU));
    group->reset_grads();
  }
  reduce(*group, gradient(*group, 3));
  host.fetch(0);
  EXPECT_NEAR(host.times().device_share, 0.25, 0.05);
  EXPECT_GT(host.times().host_ms, 0.0);
}

TEST(HostUpdate, AStepThatIsSkippedLeavesTheDevicesPiecesAlone) {
  const auto group = make_group({}), untouched = make_group({});
  HostUpdate host({{group.get(), segments_of(*group), {}}}, {.piece_elements = 300, .device_share = 0.5});
  reduce(*group, gradient(*group, 3));
  host.fetch(0);
  host.end_step();
  group->reset_grads();
  host.settle();
  EXPECT_TRUE(group->masters().equal(untouched->masters()));
  EXPECT_TRUE(group->exp_avg().equal(untouched->exp_avg()));
}

TEST(HostUpdate, WithoutASharePiecesAreTheHostsOnTheCpu) {
  const auto group = make_group({});
  HostUpdate host({{group.get(), segments_of(*group), {}}}, {});
  reduce(*group, gradient(*group, 3));
  host.start({.lr = 1e-2}, scaling());
  host.finish(0, memory::CopyStream(at::kCPU));
  EXPECT_EQ(host.times().device_share, 0.0);
}

TEST(HostUpdate, MayGoAwayWithAnUpdateUnderWay) {
  const auto group = make_group({});
  reduce(*group, gradient(*group, 3));
  HostUpdate host({{group.get(), segments_of(*group), {}}}, {.piece_elements = 16, .device_share = 0.5});
  host.start({.lr = 1e-2}, {});
}

}  // namespace
}  // namespace apus::parallel
