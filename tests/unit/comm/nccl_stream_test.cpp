#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/intrusive_ptr.h>
#include <gtest/gtest.h>

#include "comm/nccl_work.h"
#include "tests/support/nccl_ranks.h"

/// In which order an NCCL group's operations and the caller's kernels run, and how long tensors are kept.
namespace apus::comm {
namespace {

using namespace apus::testing;
using Group = std::shared_ptr<Communicator>;
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// One rank over a fake, its compute stream, and a gate at which a kernel of that stream can wait.
class NcclStream : public ::testing::Test {
 protected:
  void SetUp() override {
    group_ = make_nccl_group(GlooCommunicator::create(nullptr, {}), quick_nccl(0), fake_.backend());
    compute_ = fake_.streams().compute(0);
  }
  void TearDown() override {
    open_ = true;
    fake_.stalled = false;
    group_.reset();
    EXPECT_EQ(fake_.violations(), "");
    EXPECT_EQ(fake_.open_comms(), 0);
  }
  /// A kernel that ends when `open_` is set.
  void hold(DeviceStream stream) {
    fake_.streams().push(stream, [this] { return open_.load(); });
  }
  void kernel(DeviceStream stream, std::function<void()> body) {
    fake_.streams().push(stream, [body] { return body(), true; });
  }
  static WeakTensor weak(const at::Tensor& tensor) { return WeakTensor(tensor.getIntrusivePtr()); }

  FakeNccl fake_;
  std::atomic<bool> open_{false};
  Group group_;
  DeviceStream compute_ = nullptr;
};

TEST_F(NcclStream, AnOperationStartsBehindTheCurrentStreamsWork) {
  const at::Tensor x = at::ones({1});
  hold(compute_);
  kernel(compute_, [x] { x.fill_(5.0); });
  const auto work = group_->all_reduce(x, {.scale = 2.0});
  EXPECT_FALSE(work->is_completed());
  EXPECT_EQ(x.item<float>(), 1.0F);
  open_ = true;
  fake_.streams().advance();
  EXPECT_TRUE(work->is_completed());
  EXPECT_EQ(x.item<float>(), 10.0F);
}

TEST_F(NcclStream, WaitPutsTheNextKernelBehindTheEndAndDoesNotBlock) {
  const at::Tensor x = at::ones({1});
  float seen = -1;
  fake_.stalled = true;
  const auto work = group_->all_reduce(x, {.scale = 3.0});
  int before = 0;
  kernel(compute_, [&] { before = 1; });
  EXPECT_EQ(before, 1);  // compute goes on beside the operation
  work->wait();
  kernel(compute_, [&] { seen = x.item<float>(); });
  EXPECT_EQ(seen, -1);
  EXPECT_FALSE(work->is_completed());
  fake_.stalled = false;
  fake_.streams().advance();
  EXPECT_EQ(seen, 3.0F);
  work->wait();
  EXPECT_TRUE(work->is_completed());
}

TEST_F(NcclStream, EveryStreamThatWaitsIsPutBehindTheEnd) {
  const DeviceStream other = fake_.streams().make_stream();
  const at::Tensor x = at::ones({1});
  fake_.stalled = true;
  const auto work = group_->all_reduce(x);
  work->wait();
  fake_.streams().set_current(other);
  work->wait();
  int ran = 0;
  kernel(other, [&] { ran = 1; });
  EXPECT_EQ(ran, 0);
  fake_.stalled = false;
  fake_.streams().advance();
  EXPECT_EQ(ran, 1);
  fake_.streams().set_current(compute_);
}

TEST_F(NcclStream, TwoGroupsOfTheSameRanksOverlap) {
  const auto other = group_->subgroup({0}, "second");
  const at::Tensor x = at::ones({1}), y = at::ones({1});
  hold(fake_.calls("all_reduce").front().stream);
  const auto first = group_->all_reduce(x);
  const auto second = other->all_reduce(y);
  EXPECT_FALSE(first->is_completed());
  EXPECT_TRUE(second->is_completed());
}

TEST_F(NcclStream, TensorsAreKeptUntilTheEndIsSeen) {
  fake_.stalled = true;
  at::Tensor in = at::ones({1}), out = at::empty({1});
  const WeakTensor kept_in = weak(in), kept_out = weak(out);
  group_->all_gather(out, in);  // the Work is dropped
  in.reset();
  out.reset();
  group_->all_reduce(at::ones({1}));
  EXPECT_FALSE(kept_in.expired());
  EXPECT_FALSE(kept_out.expired());
  fake_.stalled = false;
  fake_.streams().advance();
  group_->broadcast(at::ones({1}), 0);  // the next call lets them go
  EXPECT_TRUE(kept_in.expired());
  EXPECT_TRUE(kept_out.expired());
}

TEST_F(NcclStream, WaitingOnTheStreamOfTheCallLetsTensorsGo) {
  fake_.stalled = true;
  at::Tensor x = at::ones({1}), y = at::ones({1});
  const WeakTensor kept_x = weak(x), kept_y = weak(y);
  const auto first = group_->all_reduce(x), second = group_->all_reduce(y);
  x.reset();
  y.reset();
  EXPECT_FALSE(kept_x.expired());
  first->wait();
  EXPECT_TRUE(kept_x.expired());
  const DeviceStream other = fake_.streams().make_stream();
  fake_.streams().set_current(other);
  second->wait();  // what runs next on the stream of the call is not behind the end
  EXPECT_FALSE(kept_y.expired());
  fake_.streams().set_current(compute_);
}

TEST_F(NcclStream, ABarrierBlocksTheHostUntilItsEnd) {
  hold(compute_);
  std::thread opener([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    open_ = true;
  });
  group_->barrier();
  EXPECT_TRUE(open_);
  opener.join();
}

TEST_F(NcclStream, AWorkOutlivesItsGroup) {
  const at::Tensor x = at::ones({1});
  const auto work = group_->all_reduce(x);
  group_.reset();
  EXPECT_TRUE(work->is_completed());
  EXPECT_NO_THROW(work->wait());
}

TEST_F(NcclStream, OperationsOnTheirWayAreBounded) {
  fake_.stalled = true;
  std::thread opener([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    open_ = true;
    fake_.stalled = false;
  });
  const at::Tensor x = at::ones({1});
  int started = 0;
  for (; started < 5000 && !open_; ++started) group_->all_reduce(x);
  EXPECT_LE(started, 1100);
  opener.join();
}

}  // namespace
}  // namespace apus::comm
