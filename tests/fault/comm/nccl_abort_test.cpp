#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "apus/base/error.h"
#include "tests/support/comm_checks.h"
#include "tests/support/nccl_ranks.h"

namespace apus::comm {
namespace {

using namespace apus::testing;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Group = std::shared_ptr<Communicator>;

/// Waits, for a moment, until the job has ended as far as this rank knows.
std::string end_of(Communicator& group) {
  const auto start = steady_clock::now();
  while (steady_clock::now() - start < milliseconds(8000)) {
    try {
      group.check_running();
    } catch (const CommError& error) {
      return error.what();
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  return "the job has not ended";
}

TEST(NcclAbort, AnInitThatNeverFinishesIsNamedAndAborted) {
  FakeNccl fake;
  fake.init_polls = FakeNccl::kForever;
  const auto logger = std::make_shared<CaptureLogger>();
  try {
    run_nccl(2, fake, [](Group, Group) { FAIL() << "the group cannot exist"; },
             {.timeout = milliseconds(300), .logger = logger});
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_HAS(text, "group world of 2 ranks could not be connected by NCCL: rank ");
    EXPECT_HAS(text, "waited 0.3 s in ncclCommInitRankConfig");
  }
  EXPECT_EQ(fake.calls("abort").size(), 2u);
  EXPECT_EQ(fake.violations(), "");
  EXPECT_EQ(fake.open_comms(), 0);
}

TEST(NcclAbort, ARankThatNeverComesToInitIsWaitedForNoLongerThanTheTimeout) {
  FakeNccl fake;
  const auto backend = fake.backend();
  run_ranks(2,
            [&](Group host) {
              if (host->rank() == 0) {  // has the unique id, and does something else
                std::this_thread::sleep_for(milliseconds(600));
                EXPECT_THROW(host->check_running(), CommError);
                return;
              }
              const std::string text = comm_error([&] { make_nccl_group(host, quick_nccl(1), backend); });
              EXPECT_HAS(text, "rank 1 waited 0.2 s for the unique id of rank 0");
            },
            {.timeout = milliseconds(200)});
  EXPECT_TRUE(fake.calls().empty());
}

TEST(NcclAbort, AnAsynchronousErrorEndsTheJobWithOneReport) {
  FakeNccl fake;
  const auto logger = std::make_shared<CaptureLogger>();
  std::vector<std::string> seen(3);
  run_nccl(3, fake,
           [&](Group group, Group) {
             group->set_note("step 12, rows 40 to 47");
             group->barrier();
             const at::Tensor x = at::ones({4, 16});
             fake.stalled = true;
             const auto work = group->all_reduce(x);
             work->wait();
             if (group->rank() == 1) fake.fail(1, NcclResult::kSystemError);
             seen[group->rank()] = end_of(*group);
             EXPECT_HAS(comm_error([&] { group->all_reduce(x); }), "stopped the job");
           },
           {.logger = logger});
  for (const std::string& text : seen) {
    EXPECT_HAS(text, "rank 1 of group world (3 ranks), all_reduce #2 Float[4, 16] (sum)");
    EXPECT_HAS(text, "step 12, rows 40 to 47");
    EXPECT_HAS(text, "NCCL failed: fake result 2");
  }
  EXPECT_EQ(logger->count("NCCL failed"), 1);
  EXPECT_EQ(fake.calls("abort").size(), 3u);
  EXPECT_TRUE(fake.calls("finalize").empty());
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, ARemoteErrorWaitsForThePeersOwnReason) {
  FakeNccl fake;
  std::vector<std::string> seen(2);
  run_nccl(2, fake, [&](Group group, Group host) {
    group->barrier();
    if (group->rank() == 0) {
      fake.fail(0, NcclResult::kRemoteError);
      seen[0] = end_of(*group);
      return;
    }
    std::this_thread::sleep_for(milliseconds(100));
    group->abort("out of disk");
  });
  EXPECT_HAS(seen[0], "rank 1 stopped the job: out of disk");
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, AHangIsReportedWithWhoDidNotArrive) {
  FakeNccl fake;
  const auto logger = std::make_shared<CaptureLogger>();
  std::vector<std::string> seen(3);
  run_nccl(3, fake,
           [&](Group world, Group) {
             const auto group = world->subgroup({0, 1, 2}, "dp");
             group->set_note("step 7");
             group->barrier();
             world->barrier();
             const at::Tensor x = at::ones({8});
             if (group->rank() != 2) group->reduce_scatter(at::empty({1}), at::ones({3}))->wait();
             seen[group->rank()] = end_of(*group);
           },
           {.timeout = milliseconds(300), .logger = logger});
  for (const std::string& text : seen) {
    EXPECT_HAS(text, "of group dp (3 ranks) waited 0.3 s in reduce_scatter #2 Float[3] (sum), step 7");
    EXPECT_HAS(text, "did not arrive: rank 2 (last in barrier #1)");
    EXPECT_EQ(text.find("did not arrive: rank 1"), std::string::npos);
  }
  EXPECT_EQ(logger->count("did not arrive"), 1);
  EXPECT_EQ(fake.calls("abort").size(), 6u);
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, ACallThatStaysInProgressIsReportedAndThrows) {
  FakeNccl fake;
  std::vector<std::string> seen(2);
  run_nccl(2, fake,
           [&](Group group, Group) {
             group->barrier();
             fake.call_polls = FakeNccl::kForever;
             seen[group->rank()] = comm_error([&] { group->broadcast(at::ones({5}), 1); });
           },
           {.timeout = milliseconds(300)});
  for (const std::string& text : seen) EXPECT_HAS(text, "waited 0.3 s in broadcast #2 Float[5] (root 1)");
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, AHostThatWaitsInABarrierIsReleased) {
  FakeNccl fake;
  run_nccl(2, fake, [&](Group group, Group) {
    group->barrier();
    if (group->rank() == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      return group->abort("enough");
    }
    EXPECT_HAS(comm_error([&] { group->barrier(); }), "rank 1 stopped the job: enough");
  });
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, AWaitOnTheHostsGroupIsReleasedByTheSameAbort) {
  FakeNccl fake(at::kMeta);
  run_nccl(2, fake, [&](Group group, Group host) {
    group->barrier();
    if (group->rank() == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      return group->abort("enough");
    }
    EXPECT_HAS(comm_error([&] { group->all_reduce(at::zeros({1}))->wait(); }),
               "rank 1 stopped the job: enough");
    EXPECT_THROW(host->barrier(), CommError);
  });
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, AllCommunicatorsOfARankAreAbortedInOneGroupOfOneThread) {
  FakeNccl fake;
  run_nccl(2, fake, [&](Group group, Group) {
    const auto tp = group->subgroup({0, 1}, "tp"), dp = group->subgroup({0, 1}, "dp");
    group->barrier();
    if (group->rank() == 1) tp->abort("enough");
    EXPECT_HAS(end_of(*dp), "enough");
  });
  std::map<std::thread::id, int> aborts;
  for (const FakeCall& call : fake.calls("abort")) ++aborts[call.thread];
  ASSERT_EQ(aborts.size(), 2u);
  for (const auto& [thread, count] : aborts) {
    EXPECT_EQ(count, 3);
    std::string order;
    for (const FakeCall& call : fake.calls()) {
      if (call.thread == thread) order += call.name + " ";
    }
    EXPECT_EQ(order, "group_start abort abort abort group_end ");
  }
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, AfterwardsWorksThrowAndThoseThatHadLandedDoNot) {
  FakeNccl fake;
  run_nccl(2, fake, [&](Group group, Group) {
    const auto done = group->all_reduce(at::ones({1}));
    group->barrier();
    EXPECT_TRUE(done->is_completed());
    fake.stalled = true;
    const auto lost = group->all_reduce(at::ones({1}));
    const auto unseen = group->all_reduce(at::ones({1}));
    if (group->rank() == 0) group->abort("over");
    EXPECT_HAS(end_of(*group), "over");
    while (fake.calls("abort").size() < 2) std::this_thread::yield();
    const std::string first = comm_error([&] { lost->wait(); });
    EXPECT_HAS(first, "all_reduce #3");
    EXPECT_EQ(comm_error([&] { lost->wait(); }), first);
    EXPECT_TRUE(unseen->is_completed());
    EXPECT_THROW(unseen->wait(), CommError);
    EXPECT_NO_THROW(done->wait());
    EXPECT_THROW(group->barrier(), CommError);
    EXPECT_THROW(group->subgroup({0, 1}, "late"), CommError);
  });
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, AShutdownThatNeverFinishesIsBounded) {
  FakeNccl fake;
  fake.finalize_polls = FakeNccl::kForever;
  const auto logger = std::make_shared<CaptureLogger>();
  const auto start = steady_clock::now();
  run_nccl(2, fake, [](Group group, Group) { group->barrier(); }, {.logger = logger});
  EXPECT_LT(steady_clock::now() - start, milliseconds(3000));
  EXPECT_EQ(fake.calls("finalize").size(), 2u);
  EXPECT_EQ(fake.calls("abort").size(), 2u);
  EXPECT_TRUE(fake.calls("destroy").empty());
  EXPECT_TRUE(logger->contains("group world: NCCL did not finish in 0.5 s; its communicator is aborted"));
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, AShutdownWithWorkUnderWayKeepsItsTensorsUntilTheAbort) {
  FakeNccl fake;
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> kept{
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  bool was_kept = false;
  fake.on_abort = [&] { was_kept = !kept.expired(); };
  {
    const auto group = make_nccl_group(GlooCommunicator::create(nullptr, {}), quick_nccl(0), fake.backend());
    fake.stalled = true;
    const at::Tensor x = at::ones({1});
    kept = decltype(kept)(x.getIntrusivePtr());
    group->all_reduce(x);
  }
  EXPECT_TRUE(was_kept);
  EXPECT_TRUE(kept.expired());
  EXPECT_EQ(fake.calls("abort").size(), 1u);
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclAbort, AnAbortThatDoesNotComeBackIsLeftBehind) {
  FakeNccl fake;
  std::atomic<bool> released{false}, came_back{false};
  fake.on_abort = [&] {
    while (!released) std::this_thread::sleep_for(milliseconds(1));
    came_back = true;
  };
  const auto backend = fake.backend();
  const auto start = steady_clock::now();
  {
    const auto group = make_nccl_group(GlooCommunicator::create(nullptr, {}), quick_nccl(0), backend);
    group->abort("enough");
    EXPECT_THROW(group->barrier(), CommError);
  }
  EXPECT_LT(steady_clock::now() - start, milliseconds(3000));
  EXPECT_FALSE(came_back);
  released = true;
  while (!came_back) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(50));  // the thread that was left ends by itself
}

TEST(NcclAbort, ALostDeviceEndsTheJob) {
  FakeNccl fake;
  const auto group = make_nccl_group(GlooCommunicator::create(nullptr, {}), quick_nccl(0), fake.backend());
  fake.stalled = true;
  const auto work = group->all_reduce(at::ones({2}));
  fake.device_lost = true;
  const std::string text = end_of(*group);
  EXPECT_HAS(text, "all_reduce #1 Float[2] (sum)");
  EXPECT_HAS(text, "the device failed: fake device error");
  EXPECT_THROW(work->wait(), CommError);
}

TEST(NcclAbort, ARefusedCallEndsTheJobAndItsGroup) {
  FakeNccl fake;
  auto group = make_nccl_group(GlooCommunicator::create(nullptr, {}), quick_nccl(0), fake.backend());
  fake.send_result = NcclResult::kInvalidArgument;
  const std::string text = comm_error([&] { group->all_to_all(at::empty({1}), at::ones({1})); });
  EXPECT_HAS(text, "all_to_all #1 Float[1]: NCCL failed: fake result 4");
  group.reset();  // the abort has ended, too
  EXPECT_EQ(fake.calls("group_start").size(), fake.calls("group_end").size());
  EXPECT_TRUE(fake.calls("recv").empty());
  EXPECT_EQ(fake.violations(), "");
}

}  // namespace
}  // namespace apus::comm
