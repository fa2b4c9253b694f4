#include "apus/comm/nccl_communicator.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/comm/gloo_communicator.h"
#include "tests/support/tensor_checks.h"

namespace apus::comm {
namespace {

using namespace apus::testing;

/// Of fp32 where nothing is said: at::full takes the dtype of its number.
at::Tensor full(at::IntArrayRef shape, double value, at::TensorOptions options = at::kFloat) {
  return at::full(shape, value, options);
}

/// One rank through the linked NCCL.
class NcclOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
    at::globalContext().lazyInitDevice(at::kCUDA);
  }
  std::unique_ptr<Communicator> make(NcclOptions options = {}) {
    options.group_of_one = GroupOfOne::kNccl;
    return NcclCommunicator::create(GlooCommunicator::create(nullptr, {.logger = logger_}), options);
  }
  /// Keeps the current stream busy for some milliseconds.
  static at::Tensor keep_busy() {
    const at::Tensor a = full({8192, 8192}, 0.001F, at::TensorOptions().device(at::kCUDA));
    at::Tensor out = a;
    for (int i = 0; i < 8; ++i) out = at::mm(a, out);
    return out;
  }

  std::shared_ptr<CaptureLogger> logger_ = std::make_shared<CaptureLogger>();
};

at::Tensor on_gpu(const at::Tensor& tensor) {
  return tensor.to(at::kCUDA);
}

TEST_F(NcclOnGpu, EveryOperationGivesWhatItsContractSays) {
  const auto group = make();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const int64_t count : {1, 127, 129, 1 << 20}) {
      const at::Tensor x = random_tensor({count}, 1, dtype), poison = full({count}, NAN, dtype);
      const at::Tensor sum = on_gpu(x), all = on_gpu(poison), part = on_gpu(poison), out = on_gpu(poison);
      const at::Tensor in = on_gpu(x), rows = on_gpu(poison);
      group->all_reduce(sum, {.scale = 0.5})->wait();
      group->all_gather(all, in)->wait();
      group->reduce_scatter(part, in, {.scale = 2.0})->wait();
      group->all_to_all(out, in)->wait();
      group->all_to_all_v(rows, in, {count}, {count})->wait();
      group->broadcast(in, 0)->wait();
      EXPECT_TRUE(sum.cpu().equal(x * 0.5));
      EXPECT_TRUE(part.cpu().equal(x * 2.0));
      for (const at::Tensor& same : {all, out, rows, in}) EXPECT_TRUE(same.cpu().equal(x));
    }
  }
  const at::Tensor counts = on_gpu(full({5}, 7, at::kLong)), flags = on_gpu(full({5}, true, at::kBool));
  const at::Tensor all_flags = on_gpu(at::zeros({5}, at::kBool));
  group->all_reduce(counts, {.op = ReduceOp::kMax})->wait();
  group->all_gather(all_flags, flags)->wait();
  group->barrier();
  EXPECT_TRUE(counts.cpu().equal(full({5}, 7, at::kLong)));
  EXPECT_TRUE(all_flags.cpu().all().item<bool>());
  group->all_reduce(on_gpu(at::empty({0})))->wait();
  EXPECT_TRUE(logger_->lines().empty());
}

TEST_F(NcclOnGpu, OneHandleServesTensorsOnBothDevices) {
  const auto group = make();
  const at::Tensor header = full({3}, 4, at::kLong), x = on_gpu(full({3}, 4.0));
  group->all_reduce(x)->wait();
  group->all_reduce(header)->wait();
  EXPECT_TRUE(header.equal(full({3}, 4, at::kLong)));
  EXPECT_TRUE(x.cpu().equal(full({3}, 4.0)));
}

TEST_F(NcclOnGpu, OperationsStartBehindTheCurrentStreamAndTheNextKernelBehindThem) {
  const auto group = make();
  const at::Tensor x = on_gpu(at::zeros({1 << 22}));
  for (int round = 1; round <= 5; ++round) {
    keep_busy();
    x.fill_(round);
    const auto work = group->all_reduce(x, {.scale = 3.0});
    EXPECT_FALSE(work->is_completed());  // the host did not wait for the matrix products
    work->wait();
    const at::Tensor y = x + 1;
    EXPECT_TRUE(y.cpu().equal(full({1 << 22}, 3.0 * round + 1)));
    EXPECT_TRUE(work->is_completed());
  }
}

TEST_F(NcclOnGpu, AnOperationOverlapsWhatTheCallerDoesNext) {
  const auto group = make();
  const at::Tensor x = on_gpu(full({1 << 10}, 2.0));
  c10::cuda::device_synchronize();
  const auto work = group->all_reduce(x, {.scale = 2.0});
  const at::Tensor busy = keep_busy();
  cudaEvent_t end = nullptr;
  cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
  cudaEventRecord(end, c10::cuda::getCurrentCUDAStream());
  while (!work->is_completed()) continue;
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);  // the products still run
  cudaGetLastError();
  cudaEventDestroy(end);
  c10::cuda::device_synchronize();
}

TEST_F(NcclOnGpu, MemoryIsUsedAgainAfterWaitWithoutTheHost) {
  const auto group = make();
  const auto fp32 = at::TensorOptions().device(at::kCUDA);
  keep_busy();
  c10::cuda::device_synchronize();
  const auto before = c10::cuda::CUDACachingAllocator::getDeviceStats(0).num_device_alloc;
  for (int i = 0; i < 50; ++i) {
    const at::Tensor x = full({1 << 24}, i, fp32);
    group->all_reduce(x, {.scale = 2.0})->wait();
    if (i == 0) continue;
    ASSERT_LE(c10::cuda::CUDACachingAllocator::getDeviceStats(0).num_device_alloc, before + 2);
  }
  group->barrier();
}

TEST_F(NcclOnGpu, SubgroupsHaveStreamsOfTheirOwn) {
  const auto world = make();
  const auto dp = world->subgroup({0}, "dp"), none = world->subgroup({}, "tp");
  EXPECT_EQ(none, nullptr);
  const at::Tensor x = on_gpu(full({100}, 1.0)), y = on_gpu(full({100}, 1.0));
  const auto first = world->all_reduce(x, {.scale = 2.0}), second = dp->all_reduce(y, {.scale = 3.0});
  second->wait();
  first->wait();
  EXPECT_TRUE((x + y).cpu().equal(full({100}, 5.0)));
  dp->barrier();
  const auto split = world->split(0, 0, "again");
  split->all_reduce(x)->wait();
  EXPECT_EQ(x.cpu()[0].item<float>(), 2.0F);
}

TEST_F(NcclOnGpu, AnotherCurrentStreamIsWaitedForAndOrdered) {
  const auto group = make();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const at::Tensor x = on_gpu(at::zeros({1 << 20}));
  keep_busy();
  x.fill_(2.0);
  group->all_reduce(x, {.scale = 2.0})->wait();
  EXPECT_TRUE((x * 1).cpu().equal(full({1 << 20}, 4.0)));
}

TEST_F(NcclOnGpu, AbortEndsAllGroupsAndTheProcessGoesOn) {
  {
    const auto world = make();
    const auto dp = world->subgroup({0}, "dp");
    const at::Tensor x = on_gpu(full({1 << 20}, 1.0));
    world->all_reduce(x)->wait();
    dp->abort("enough");
    EXPECT_THROW(world->all_reduce(x), CommError);
    EXPECT_THROW(dp->barrier(), CommError);
    EXPECT_THROW(world->check_running(), CommError);
  }
  c10::cuda::device_synchronize();
  const at::Tensor x = on_gpu(full({10}, 1.0));
  make()->all_reduce(x, {.scale = 4.0})->wait();
  EXPECT_TRUE(x.cpu().equal(full({10}, 4.0)));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(NcclOnGpu, TakesACallersCommunicatorAndStream) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  {
    const auto group = make({.stream = stream.stream(), .communicator = comm});
    const at::Tensor x = on_gpu(full({10}, 1.5));
    group->all_reduce(x, {.scale = 2.0})->wait();
    group->barrier();
    EXPECT_TRUE(x.cpu().equal(full({10}, 3.0)));
  }
  int size = 0;
  EXPECT_EQ(ncclCommCount(comm, &size), ncclSuccess);  // it was given back
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(NcclOnGpu, ManyGroupsAreMadeAndClosed) {
  for (int i = 0; i < 5; ++i) {
    const auto group = make();
    const at::Tensor x = on_gpu(full({10}, 1.0));
    group->all_reduce(x);  // nobody waits
  }
  EXPECT_TRUE(logger_->lines().empty());
}

}  // namespace
}  // namespace apus::comm
