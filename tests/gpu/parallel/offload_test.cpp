// States on the host of a GPU against the same engine with everything on the card.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "apus/comm/fake_communicator.h"
#include "apus/memory/device_memory.h"
#include "apus/memory/host_buffer.h"
#include "tests/support/offload_case.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;
using memory::Residency;
using memory::StateResidency;

const at::Device kGpu(at::kCUDA, 0);
constexpr Residency kHost = Residency::kHost, kDevice = Residency::kDevice;

class GpuOffload : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }
};

OffloadRun on_gpu(const ShardPolicy& policy, at::ScalarType dtype) {
  OffloadRun run{policy, dtype};
  run.options.device = kGpu;
  run.options.initial_values = InitialValues::kOwn;
  return run;
}

OffloadRun with(OffloadRun run, const StateResidency& residency) {
  run.policy.residency = residency;
  return run;
}

/// The same numbers but for the norm's order and libm's last place.
void expect_same(const OffloadRun& run, const StateResidency& residency) {
  const auto alone = comm::make_fake_communicator({});
  const DataParallel ranks = DataParallel::one_axis(*alone);
  const OffloadResult wanted = train_offloaded(run, ranks);
  const OffloadResult found = train_offloaded(with(run, residency), ranks);
  const std::string what = run.policy.name;
  for (size_t step = 0; step < wanted.norms.size(); ++step) {
    EXPECT_NEAR(found.norms[step], wanted.norms[step], 1e-5 * wanted.norms[step]) << what << " step " << step;
  }
  for (size_t at = 0; at < wanted.losses.size(); ++at) {
    EXPECT_NEAR(found.losses[at], wanted.losses[at], 1e-4 * std::abs(wanted.losses[at])) << what;
  }
  for (const auto& [name, tensor] : wanted.tensors) {
    EXPECT_LE(rms_difference(found.tensors.at(name), tensor), 1e-5) << what << " " << name;
  }
}

TEST_F(GpuOffload, TrainsLikeTheSameEngineWithoutIt) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    expect_same(on_gpu(Ddp(), dtype), {.optimizer = kHost});
    expect_same(on_gpu(Zero2(), dtype), {.optimizer = kHost});
    expect_same(on_gpu(Zero2(), dtype), {.optimizer = kHost, .gradients = kHost});
    expect_same(on_gpu(Zero3(), dtype), {kHost, kDevice, kHost});
    expect_same(on_gpu(Zero3(), dtype), {kHost, kHost, kHost});
    expect_same(on_gpu(Zero3(), dtype), {kDevice, kDevice, kHost});
  }
}

TEST_F(GpuOffload, TrainsLikeItWithBfloat16States) {
  OffloadRun run = on_gpu(Zero3(), at::kBFloat16);
  run.options.optimizer_states = memory::OptimizerStates::kBf16;
  run.options.grad_accum_dtype = at::kBFloat16;
  expect_same(run, {kHost, kHost, kHost});
  expect_same(run, {kHost, kDevice, kDevice});
}

TEST_F(GpuOffload, NoBitDependsOnWhoUpdatesAPiece) {
  const auto alone = comm::make_fake_communicator({});
  const DataParallel ranks = DataParallel::one_axis(*alone);
  OffloadRun narrow = on_gpu(Zero2(), at::kBFloat16);
  narrow.options.optimizer_states = memory::OptimizerStates::kBf16;
  OffloadRun skips = on_gpu(Zero2(), at::kFloat);
  skips.skipped_step = 1;
  for (OffloadRun run : {on_gpu(Zero2(), at::kFloat), on_gpu(Zero2(), at::kBFloat16),
                         on_gpu(Ddp(), at::kHalf), on_gpu(Zero3(), at::kBFloat16), narrow, skips}) {
    run.policy.residency = {.optimizer = kHost};
    run.options.host_device_share = 0.0;
    const OffloadResult wanted = train_offloaded(run, ranks);
    for (const double share : {0.3, 1.0}) {
      run.options.host_device_share = share;
      train_offloaded(run, ranks).expect_equal_to(wanted, run.policy.name + " " + std::to_string(share));
    }
    run.options.host_device_share.reset();
    run.learns_share = true;
    train_offloaded(run, ranks).expect_equal_to(wanted, run.policy.name + " learnt");
  }
}

TEST_F(GpuOffload, TheDevicesShareIsLearnt) {
  const auto alone = comm::make_fake_communicator({});
  OffloadRun run = with(on_gpu(Zero2(), at::kBFloat16), {.optimizer = kHost});
  run.learns_share = true;
  const OffloadedLayers layers;
  ShardedUnits engine(layers.units(), DataParallel::one_axis(*alone), run.engine_options());
  OffloadResult result;
  for (int64_t step = 0; step < 4; ++step) take_step(layers, engine, run, step, result);
  const HostUpdateTimes times = engine.host_update_times();
  EXPECT_GT(times.host_ms, 0.0);
  EXPECT_GT(times.device_ms, 0.0);
  EXPECT_GT(times.device_share, 0.0);
  EXPECT_LT(times.device_share, 1.0);
}

TEST_F(GpuOffload, KeepsABaseOnTheHostUnderAdapters) {
  OffloadRun run = on_gpu(Zero3(), at::kBFloat16);
  run.trains = OffloadedLayers::Trains::kBiasesAlone;
  expect_same(run, {kHost, kHost, kHost});
}

TEST_F(GpuOffload, ASkippedStepChangesNothingAndDoesNotCount) {
  OffloadRun run = on_gpu(Zero3(), at::kFloat);
  run.skipped_step = 1;
  expect_same(run, {kHost, kDevice, kHost});
  expect_same(run, {kHost, kHost, kHost});
}

TEST_F(GpuOffload, AfterTheFirstStepTheDriverIsNotAskedForMemory) {
  const auto alone = comm::make_fake_communicator({});
  const OffloadRun run = with(on_gpu(Zero3(), at::kBFloat16), {kHost, kHost, kHost});
  const OffloadedLayers layers;
  ShardedUnits engine(layers.units(), DataParallel::one_axis(*alone), run.engine_options());
  OffloadResult result;
  take_step(layers, engine, run, 0, result);
  take_step(layers, engine, run, 1, result);
  const int64_t before = memory::device_memory(kGpu).driver_allocations;
  for (int64_t step = 2; step < 5; ++step) take_step(layers, engine, run, step, result);
  EXPECT_EQ(memory::device_memory(kGpu).driver_allocations, before);
}

TEST_F(GpuOffload, StatesLieInPinnedMemory) {
  const at::Tensor zeros = memory::host_zeros((int64_t{5} << 20) + 3, at::kFloat, kGpu);
  EXPECT_TRUE(zeros.is_cpu());
  EXPECT_TRUE(zeros.is_pinned());
  EXPECT_EQ(zeros.abs().max().item<double>(), 0.0);
}

}  // namespace
}  // namespace apus::parallel
