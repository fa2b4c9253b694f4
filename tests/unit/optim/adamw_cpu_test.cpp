#include "optim/adamw_cpu.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/optim/update_threads.h"
#include "optim/adamw_kernel.h"

namespace apus::optim {
namespace {

// Many pieces, and the last one short.
constexpr int64_t kCount = 300'007;

/// Uneven numbers around 0, cheaply made.
at::Tensor numbers(int64_t count, double factor) {
  return at::arange(count, at::kFloat).mul_(factor).sin_().to(at::kFloat);
}

struct Shard {
  at::ScalarType states = at::kFloat;
  int64_t count = kCount;
  AdamwState state{numbers(count, 0.37).to(states), numbers(count, 0.11).mul_(0.1).to(states),
                   numbers(count, 0.07).square_().to(states)};
  at::Tensor grad = numbers(count, 1.3);
  at::Tensor copy = states == at::kFloat ? at::zeros({count}, at::kBFloat16) : at::Tensor();

  void expect_like(const Shard& wanted, const std::string& what) const {
    EXPECT_TRUE(at::equal(state.master_N, wanted.state.master_N)) << what;
    EXPECT_TRUE(at::equal(state.exp_avg_N, wanted.state.exp_avg_N)) << what;
    EXPECT_TRUE(at::equal(state.exp_avg_sq_N, wanted.state.exp_avg_sq_N)) << what;
    EXPECT_TRUE(!copy.defined() || at::equal(copy, wanted.copy)) << what;
  }
};

/// Segments of odd lengths with gaps; rates and decays differ.
std::vector<Segment> segments(int64_t count = kCount) {
  std::vector<Segment> list;
  for (int64_t begin = 3, length = 1, i = 0; begin < count;
       ++i, begin += length + i % 4, length = length * 2 + 7)
    list.push_back({.begin = begin,
                    .end = std::min(begin + length, count),
                    .lr_scale = 1.0 + 0.5 * static_cast<double>(i % 2),
                    .weight_decay = i % 3 == 0 ? 0.1 : 0.0,
                    .rounding_key = static_cast<uint64_t>(100 + i),
                    .first_element = 5 * i});
  return list;
}

void step(const Shard& shard, AdamwOptions options, const std::vector<Segment>& list = segments()) {
  options.lr = 1e-2;
  adamw_step(shard.state, shard.grad, shard.copy, list, options);
}

TEST(AdamwCpu, TheBitsDoNotDependOnThreads) {
  for (const at::ScalarType states : {at::kFloat, at::kBFloat16}) {
    Shard one{.states = states};
    step(one, {.threads = 1});
    for (const int64_t threads : {0, 2, 3, 8}) {
      Shard several{.states = states};
      step(several, {.threads = threads});
      several.expect_like(one, std::to_string(threads) + " threads");
    }
    for (const int64_t count : {1, 2, 5}) {
      UpdateThreads team(count);
      Shard shared{.states = states};
      step(shared, {.team = &team});
      shared.expect_like(one, "a team of " + std::to_string(count));
    }
    EXPECT_FALSE(at::equal(one.state.master_N, Shard{.states = states}.state.master_N));
  }
}

TEST(AdamwCpu, TheBitsDoNotDependOnTheInstructions) {
  UpdateThreads team(3);
  const AdamwSegments prepared(segments(), kCount, at::kCPU);
  for (const at::ScalarType states : {at::kFloat, at::kBFloat16}) {
    Shard plain{.states = states};
    const auto run = [&](const Shard& shard, const detail::AdamwKernels* kernels, UpdateThreads* with) {
      detail::adamw_step_on_cpu(shard.state, shard.grad, shard.copy, prepared, {.lr = 1e-2, .team = with}, {},
                                kernels);
    };
    run(plain, &detail::portable_adamw(), nullptr);
    for (const detail::AdamwKernels* kernels : {detail::avx2_adamw(), detail::avx512_adamw()}) {
      if (!kernels) continue;
      Shard wide{.states = states};
      run(wide, kernels, &team);
      wide.expect_like(plain, kernels->name);
    }
  }
}

/// One step in calls over ranges of at most `length` elements, as sub-groups are updated.
void step_by_parts(const Shard& shard, int64_t length, const AdamwOptions& options) {
  const std::vector<Segment> all = segments();
  for (int64_t begin = 0; begin < kCount; begin += length) {
    const int64_t end = std::min(begin + length, kCount);
    std::vector<Segment> own;
    for (Segment segment : all) {
      const int64_t from = std::max(begin, segment.begin), to = std::min(end, segment.end);
      if (from >= to) continue;
      segment.first_element += from - segment.begin;
      segment.begin = from - begin;
      segment.end = to - begin;
      own.push_back(segment);
    }
    const auto part = [&](const at::Tensor& of) { return of.defined() ? of.slice(0, begin, end) : of; };
    adamw_step({part(shard.state.master_N), part(shard.state.exp_avg_N), part(shard.state.exp_avg_sq_N)},
               part(shard.grad), part(shard.copy), own, options);
  }
}

TEST(AdamwCpu, SubGroupsOfOneStepGiveTheBitsOfOneCall) {
  // Corrections that counted calls instead of steps would drift with the number of sub-groups.
  for (const at::ScalarType states : {at::kFloat, at::kBFloat16}) {
    Shard whole{.states = states};
    for (int64_t at = 1; at <= 3; ++at) step(whole, {.step = at});
    for (const int64_t length : {100'001, 4099}) {
      Shard cut{.states = states};
      for (int64_t at = 1; at <= 3; ++at) step_by_parts(cut, length, {.lr = 1e-2, .step = at, .threads = 2});
      cut.expect_like(whole, "sub-groups of " + std::to_string(length));
    }
  }
}

TEST(AdamwCpu, TheStepsNumberAloneDecidesTheCorrections) {
  // The same state, once after many calls on another shard and with other numbers before it, once first of
  // all.
  Shard first, later, other_step;
  step(first, {.step = 7});
  Shard other;
  for (int64_t at = 1; at < 5; ++at) step(other, {.step = at});
  step(later, {.step = 7});
  later.expect_like(first, "after other calls");
  step(other_step, {.step = 8});
  EXPECT_FALSE(at::equal(other_step.state.master_N, first.state.master_N));
  EXPECT_TRUE(at::equal(other_step.state.exp_avg_N, first.state.exp_avg_N));
}

TEST(AdamwCpu, ALargeShardsCopyIsRightToItsEnd) {
  // Large enough for the copy to be streamed; its address is not a line's.
  constexpr int64_t kLarge = (int64_t{4} << 20) + 5;
  const auto tensor = [](double value) { return at::full({kLarge}, value, at::kFloat); };
  const AdamwState state{tensor(0.3), tensor(0), tensor(0)};
  const at::Tensor room = at::zeros({kLarge + 8}, at::kBFloat16);
  const at::Tensor copy = room.slice(0, 3, kLarge + 3);
  adamw_step(state, numbers(kLarge, 0.9), copy, std::vector<Segment>{{.begin = 0, .end = kLarge}},
             {.lr = 0.1, .threads = 2});
  EXPECT_TRUE(at::equal(copy, state.master_N.to(at::kBFloat16)));
  EXPECT_EQ(
      room.slice(0, 0, 3).abs().sum().item<double>() + room.slice(0, kLarge + 3).abs().sum().item<double>(),
      0);
}

TEST(AdamwCpu, TwoCallersUpdateAtTheSameTime) {
  Shard alone;
  step(alone, {.threads = 1});
  Shard shards[2];
  UpdateThreads team(2);
  std::thread other([&] { step(shards[0], {.team = &team}); });
  step(shards[1], {.threads = 2});
  other.join();
  shards[0].expect_like(alone, "the worker's");
  shards[1].expect_like(alone, "the main thread's");
}

TEST(AdamwCpu, RefusesFewerThanNoThreads) {
  EXPECT_THROW(step(Shard{}, {.threads = -1}), ConfigError);
}

TEST(AdamwCpu, ACopyInFp16IsTheRoundedMasterWhateverThreads) {
  for (const int64_t threads : {1, 3}) {
    Shard plain, rounded;
    rounded.copy = at::full({kCount}, -7.0, at::kHalf);
    const AdamwSegments list(segments(), kCount, at::kCPU);
    adamw_step(plain.state, plain.grad, plain.copy, list, {.lr = 1e-2, .threads = threads});
    adamw_step(rounded.state, rounded.grad, rounded.copy, list, {.lr = 1e-2, .threads = threads});
    EXPECT_TRUE(at::equal(rounded.state.master_N, plain.state.master_N));
    at::Tensor wanted = at::full({kCount}, -7.0, at::kHalf);
    for (const Segment& segment : list.list())
      wanted.slice(0, segment.begin, segment.end)
          .copy_(rounded.state.master_N.slice(0, segment.begin, segment.end));
    EXPECT_TRUE(at::equal(rounded.copy, wanted)) << "padding is not written";
  }
}

}  // namespace
}  // namespace apus::optim
