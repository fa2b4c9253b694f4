// The engine over NCCL between GPUs: reductions in a group of their own, gradients in bf16. Skipped where
// there is one GPU.
#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "apus/comm/decorators.h"
#include "apus/comm/nccl_communicator.h"
#include "tests/support/chosen_gradients.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;

class EngineOnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() < 2) GTEST_SKIP() << "fewer than two GPUs";
    at::globalContext().lazyInitDevice(at::kCUDA);
  }
  /// Ranks as threads, each on a GPU of its own.
  static void run(const std::function<void(std::shared_ptr<comm::Communicator>, at::Device)>& body) {
    run_ranks(std::min<int>(c10::cuda::device_count(), 4), [&](std::shared_ptr<comm::Communicator> host) {
      const auto index = static_cast<c10::DeviceIndex>(host->rank());
      const c10::cuda::CUDAGuard guard(index);
      body(comm::NcclCommunicator::create(host, {.device = index}), {at::kCUDA, index});
      c10::cuda::device_synchronize();
    });
  }
};

at::Tensor share_of(int rank, size_t leaf, at::IntArrayRef sizes) {
  return random_tensor(sizes, 10 * static_cast<uint64_t>(rank) + leaf);
}

/// Each rank's share rounded to `dtype`, added in rank order in fp32.
at::Tensor sum_in_rank_order(int ranks, size_t leaf, at::IntArrayRef sizes, at::ScalarType dtype) {
  at::Tensor sum = at::zeros(sizes);
  for (int rank = 0; rank < ranks; ++rank) sum += share_of(rank, leaf, sizes).to(dtype).to(at::kFloat);
  return sum;
}

TEST_F(EngineOnGpus, SumsBfloat16GradientsInFp32InRankOrder) {
  const std::vector<std::vector<int64_t>> sizes = {{300, 70}, {5}, {1100}, {64, 64}};
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    run([&](std::shared_ptr<comm::Communicator> world, at::Device device) {
      const auto log = comm::CommLog::create();
      const auto recorded = comm::make_recorded_communicator(world, log);
      std::vector<at::Tensor> leaves, shares;
      for (size_t leaf = 0; leaf < sizes.size(); ++leaf) {
        leaves.push_back(filled_leaf(sizes[leaf], 1.0));
        shares.push_back(share_of(world->rank(), leaf, sizes[leaf]).to(device));
      }
      ChosenGradients job(leaves, DataParallel::one_axis(*recorded),
                          {.policy = policy,
                           .bucket_elements = 1,
                           .device = device,
                           .reduce_dtype = at::kBFloat16,
                           .poison_released = true});
      job.micro_batch(shares, MicroBatchPlace::kLast);
      const auto gradients = step_gradients(job.engine());
      for (size_t leaf = 0; leaf < sizes.size(); ++leaf) {
        at::Tensor wanted = sum_in_rank_order(world->size(), leaf, sizes[leaf], at::kBFloat16);
        if (!policy.opt_shard) wanted = wanted.to(at::kBFloat16).to(at::kFloat);
        EXPECT_TRUE(gradients.at("w" + std::to_string(leaf)).cpu().equal(wanted)) << policy.name;
      }
      for (const comm::OpRecord& record : log->records()) {
        const bool second = policy.param_shard && record.info.kind == comm::OpKind::kAllToAll;
        EXPECT_EQ(record.group, second ? "world_reduce" : "world") << policy.name << record.info.text();
      }
    });
  }
}

}  // namespace
}  // namespace apus::parallel
