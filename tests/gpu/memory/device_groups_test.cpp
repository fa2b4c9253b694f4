#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/remainder.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "apus/base/error.h"
#include "apus/memory/device_memory.h"
#include "apus/memory/frozen_group.h"
#include "apus/memory/grad_sink.h"
#include "apus/memory/param_group.h"
#include "apus/memory/slot_pool.h"
#include "apus/memory/staged_copy.h"
#include "tests/support/tensor_checks.h"

namespace apus::memory {
namespace {

using apus::testing::random_leaf;
using apus::testing::random_tensor;

const at::Device kGpu(at::kCUDA, 0);

class GpuMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(GpuMemory, GroupsReadLeavesOfTheHostIntoTheDevice) {
  const at::Tensor a = random_leaf({5, 7}, 1), b = random_leaf({131}, 2);
  const at::Tensor before_a = a.detach().clone(), before_b = b.detach().clone();
  ParamGroup group({{"a", a}, {"b", b}}, {.compute_dtype = at::kBFloat16, .device = kGpu});
  EXPECT_EQ(a.device(), kGpu);
  EXPECT_TRUE(a.is_leaf() && a.requires_grad());
  apus::testing::expect_equal(a.detach().cpu(), before_a.to(at::kBFloat16));
  apus::testing::expect_equal(b.detach().cpu(), before_b.to(at::kBFloat16));
  apus::testing::expect_equal(group.masters().slice(0, 0, 35).cpu(), before_a.view({-1}));
}

TEST_F(GpuMemory, PiecesOfAGroupArriveWhole) {
  const int64_t elements = ParamGroup::kPieceElements + 12'345;
  const at::Tensor a = at::arange(elements, at::kInt).to(at::kFloat).set_requires_grad(true);
  const at::Tensor before = a.detach().clone();
  ParamGroup group({{"a", a}}, {.device = kGpu});
  apus::testing::expect_equal(a.detach().cpu(), before);
}

TEST_F(GpuMemory, LeavesOfTheDeviceArriveOnTheHostWhole) {
  const int64_t elements = 2 * ParamGroup::kPieceElements + 12'345;
  const at::Tensor values = at::arange(elements, at::kInt).remainder(251).to(kGpu, at::kBFloat16);
  const at::Tensor leaf = values.clone().set_requires_grad(true);
  constexpr Residency kHost = Residency::kHost;
  ParamGroup group({{"a", leaf}}, {.shard_parameters = true,
                                   .shard_optimizer = true,
                                   .shard_gradients = true,
                                   .grad_dtype = at::kBFloat16,
                                   .states = OptimizerStates::kBf16,
                                   .device = kGpu,
                                   .residency = {kHost, kHost, kHost}});
  apus::testing::expect_equal(group.own_params().slice(0, 0, elements).cpu(), values.cpu());
}

TEST_F(GpuMemory, TheTapeFollowsALeafThatMoved) {
  // The leaf's gradient accumulator was made for the CPU by the first backward.
  const at::Tensor weight = random_leaf({4, 4}, 1);
  at::linear(random_tensor({2, 4}, 2), weight).sum().backward();
  weight.mutable_grad().reset();
  ParamGroup group({{"w", weight}}, {.device = kGpu});
  at::linear(random_tensor({2, 4}, 2).to(kGpu), weight).sum().backward();
  ASSERT_TRUE(weight.grad().defined());
  EXPECT_EQ(weight.grad().device(), kGpu);
}

TEST_F(GpuMemory, AnOperationWritesItsGradientInEitherDtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = random_leaf({3}, 1), b = random_leaf({130}, 2);
    ParamGroup group({{"a", a}, {"b", b}}, {.grad_dtype = dtype, .device = kGpu});
    { const at::Tensor poison = at::full({1 << 16}, std::numeric_limits<double>::quiet_NaN(), at::kCUDA); }
    GradSink sink({&group});
    sink.expect(b);
    GradTarget target = *sink.target(b);
    EXPECT_TRUE(target.is_fresh);
    EXPECT_EQ(target.grad.scalar_type(), dtype);
    target.grad.fill_(2.0);
    sink.add(b, at::ones({130}, kGpu));
    EXPECT_EQ(group.begin_reduce().to(at::kDouble).sum().item<double>(), 390.0) << "gaps and a are zeros";
  }
}

TEST_F(GpuMemory, FrozenGroupsGatherOnTheDevice) {
  const at::Tensor a = random_tensor({6, 3}, 1), b = random_tensor({257}, 2, at::kBFloat16);
  const at::Tensor before_a = a.clone(), before_b = b.clone();
  FrozenGroup group({{"a", a}, {"b", b}}, {.compute_dtype = at::kBFloat16, .device = kGpu});
  EXPECT_EQ(group.buffer().shard().device(), kGpu);
  SlotPool pool({.bytes = group.buffer().bytes()}, kGpu);
  const at::Tensor slot = pool.take();
  group.buffer().begin_gather(slot);
  slot.copy_(group.buffer().shard());
  group.buffer().finish_gather();
  apus::testing::expect_equal(a.cpu(), before_a.to(at::kBFloat16));
  apus::testing::expect_equal(b.cpu(), before_b);
  group.buffer().release();
  EXPECT_ANY_THROW(a.clone()) << "touching a released parameter";
}

TEST_F(GpuMemory, StagedCopiesOfManyPiecesArriveWhole) {
  const int64_t elements = kStagingBytes / 4 * 3 + 77;
  const at::Tensor source = at::arange(elements, at::kInt).to(at::kFloat);
  const at::Tensor same =
      at::full({elements}, std::numeric_limits<double>::quiet_NaN(), at::TensorOptions().device(kGpu));
  staged_copy(same, source);
  apus::testing::expect_equal(same.cpu(), source);
  apus::testing::expect_equal(staged_to(source, kGpu, at::kBFloat16).cpu(), source.to(at::kBFloat16));
}

TEST_F(GpuMemory, PeaksAndTheCapAreTheAllocators) {
  reset_peak_memory(kGpu);
  const DeviceMemory before = device_memory(kGpu);
  constexpr int64_t kBytes = int64_t{64} << 20;
  { const at::Tensor block = at::empty({kBytes}, at::TensorOptions().dtype(at::kByte).device(kGpu)); }
  const DeviceMemory after = device_memory(kGpu);
  EXPECT_EQ(after.peak_allocated_bytes - before.allocated_bytes, kBytes);
  EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
  EXPECT_GE(after.total_bytes, after.free_bytes);

  release_cached_memory(kGpu);
  limit_device_memory(kGpu, device_memory(kGpu).reserved_bytes + kBytes);
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(kGpu);
  EXPECT_ANY_THROW(at::empty({2 * kBytes}, bytes));
  limit_device_memory(kGpu, 0);
  EXPECT_EQ(at::empty({2 * kBytes}, bytes).numel(), 2 * kBytes);
  EXPECT_THROW(limit_device_memory(kGpu, -1), ConfigError);
}

TEST_F(GpuMemory, WarmedUpAllocationsCallTheDriverNoMore) {
  const auto cycle = [] {
    const at::Tensor a = random_tensor({1000}, 1).to(kGpu);
    return a.add(1.0).sum().item<float>();
  };
  cycle();
  const int64_t calls = device_memory(kGpu).driver_allocations;
  cycle();
  EXPECT_EQ(device_memory(kGpu).driver_allocations, calls);
}

TEST_F(GpuMemory, ExpandableSegmentsServeAnySizeFromWhatWasFreed) {
  use_expandable_segments();
  release_cached_memory(kGpu);
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(kGpu);
  constexpr int64_t kPart = int64_t{128} << 20;
  const int64_t before = device_memory(kGpu).reserved_bytes;
  {
    std::vector<at::Tensor> parts;
    for (int part = 0; part < 4; ++part) parts.push_back(at::empty({kPart}, bytes));
  }
  const at::Tensor whole = at::empty({4 * kPart}, bytes);
  EXPECT_LE(device_memory(kGpu).reserved_bytes - before, 4 * kPart + (int64_t{64} << 20));
}

}  // namespace
}  // namespace apus::memory
