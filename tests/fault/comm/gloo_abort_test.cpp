#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "apus/comm/gloo_communicator.h"
#include "tests/support/comm_checks.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::comm_error;
using testing::run_ranks;
using Group = std::shared_ptr<Communicator>;

TEST(GlooAbort, ARankThatThrowsStopsPeersThatWaitInACollective) {
  const auto start = steady_clock::now();
  std::vector<std::string> seen(4);
  try {
    run_ranks(4, [&](Group group) {
      group->barrier();
      if (group->rank() == 2) {
        std::this_thread::sleep_for(milliseconds(100));  // the others have left the barrier
        throw DataError("train.jsonl", 17, "broken JSON");
      }
      seen[group->rank()] = comm_error([&] { group->all_reduce(at::zeros({1000}))->wait(); });
    });
    FAIL() << "the first cause must be thrown";
  } catch (const DataError& error) {
    EXPECT_HAS(std::string(error.what()), "train.jsonl:17");
  }
  EXPECT_LT(steady_clock::now() - start, milliseconds(3000));
  for (int rank : {0, 1, 3}) EXPECT_HAS(seen[rank], "rank 2 stopped the job: train.jsonl:17: broken JSON");
}

TEST(GlooAbort, EveryKindOfOperationStops) {
  using Call = std::function<std::shared_ptr<Work>(Communicator&)>;
  const std::vector<Call> calls = {
      [](Communicator& g) { return g.all_gather(at::zeros({3}), at::zeros({1})); },
      [](Communicator& g) { return g.reduce_scatter(at::zeros({1}), at::zeros({3})); },
      [](Communicator& g) { return g.broadcast(at::zeros({1}), 2); },
      [](Communicator& g) { return g.all_to_all(at::zeros({3}), at::zeros({3})); },
      [](Communicator& g) { return g.start_barrier(); },
      [](Communicator& g) {
        return g.send_recv({{.kind = P2pKind::kRecv, .peer = 2, .tensor = at::zeros({1})}});
      },
  };
  for (const Call& call : calls) {
    const auto start = steady_clock::now();
    run_ranks(3, [&](Group group) {
      if (group->rank() == 2) {
        std::this_thread::sleep_for(milliseconds(50));
        group->abort("enough");
        return;
      }
      EXPECT_HAS(comm_error([&] { call(*group)->wait(); }), "rank 2 stopped the job: enough");
    });
    EXPECT_LT(steady_clock::now() - start, milliseconds(3000));
  }
}

TEST(GlooAbort, AbortingOneGroupStopsItsRelatives) {
  run_ranks(4, [](Group world) {
    const int r = world->rank();
    const auto pair = world->subgroup(r < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, "pair");
    world->barrier();
    if (r == 0) {
      std::this_thread::sleep_for(milliseconds(300));  // the others have left the barrier
      pair->abort("in the pair");
      return;
    }
    EXPECT_HAS(comm_error([&] { (r == 1 ? *world : *pair).barrier(), world->barrier(); }), "in the pair");
    EXPECT_THROW(world->check_running(), CommError);
  });
}

TEST(GlooAbort, AfterwardsEveryCallAndWaitThrows) {
  run_ranks(2, [](Group group) {
    const auto done = group->all_reduce(at::zeros({1}));
    done->wait();
    group->barrier();
    if (group->rank() == 1) {
      std::this_thread::sleep_for(milliseconds(100));
      group->abort("over");
    }
    std::shared_ptr<Work> work;
    const std::string text = comm_error([&] {
      for (int i = 0; i < 1000; ++i) {
        work = group->all_reduce(at::zeros({1}));
        work->wait();
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
    EXPECT_HAS(text, "over");
    EXPECT_NO_THROW(done->wait());
    EXPECT_THROW(group->barrier(), CommError);
  });
}

TEST(GlooAbort, AFailedWorkThrowsTheSameErrorAgain) {
  run_ranks(2, [](Group group) {
    if (group->rank() == 1) {
      std::this_thread::sleep_for(milliseconds(20));
      group->abort("once");
      return;
    }
    const auto work = group->all_reduce(at::zeros({1}));
    const std::string first = comm_error([&] { work->wait(); });
    EXPECT_EQ(comm_error([&] { work->wait(); }), first);
    EXPECT_TRUE(work->is_completed());
  });
}

TEST(GlooAbort, ADeadlineNamesWhoDidNotArrive) {
  const auto logger = std::make_shared<CaptureLogger>();
  std::vector<std::string> seen(4);
  run_ranks(4,
            [&](Group world) {
              const auto group = world->subgroup({0, 1, 2, 3}, "dp");
              group->set_note("step 12");
              group->barrier();
              if (group->rank() == 3) {
                std::this_thread::sleep_for(milliseconds(2500));
                seen[3] = comm_error([&] { group->all_reduce(at::zeros({16})); });
                return;
              }
              seen[group->rank()] = comm_error([&] { group->all_reduce(at::zeros({16}))->wait(); });
            },
            {.timeout = milliseconds(400), .logger = logger});
  for (int rank : {0, 1, 2, 3}) {
    EXPECT_HAS(seen[rank], "of group dp (4 ranks) waited 0.4 s in all_reduce #2 Float[16] (sum), step 12");
    EXPECT_HAS(seen[rank], "did not arrive: rank 3 (did not answer");
    EXPECT_EQ(seen[rank].find("did not arrive: rank 0"), std::string::npos) << seen[rank];
  }
  EXPECT_EQ(logger->count("did not arrive"), 1);  // one report, not one a rank
}

TEST(GlooAbort, APeerThatVanishesWithoutAWordIsReported) {
  const auto start = steady_clock::now();
  run_ranks(3, [](Group group) {
    group->barrier();
    std::this_thread::sleep_for(milliseconds(100));
    if (group->rank() == 1) return;  // its group is destroyed, its connections close
    EXPECT_HAS(comm_error([&] { group->all_reduce(at::zeros({10}))->wait(); }), "has a peer died?");
  });
  EXPECT_LT(steady_clock::now() - start, milliseconds(5000));
}

TEST(GlooAbort, MembersThatNeverComeAreNamed) {
  const auto store = make_hash_store();
  EXPECT_HAS(comm_error([&] {
               GlooCommunicator::create(store,
                                        {.rank = 0, .size = 3, .name = "dp", .timeout = milliseconds(100)});
             }),
             "group dp of 3 ranks could not be formed: after 0.1 s rank 1, 2 had not appeared");
}

TEST(GlooAbort, TensorsOfAbandonedOperationsLiveUntilTheReaperHasEnded) {
  // Rank 0 leaves with a receive buffer in flight and poisons new memory; rank 1 sends late. Under the
  // address sanitizer a freed buffer would be reported.
  run_ranks(2,
            [](Group group) {
              group->barrier();
              if (group->rank() == 1) {
                group->all_gather(at::zeros({2'000'000}), at::zeros({1'000'000}));
                group->abort("leaving");
                return;
              }
              const std::string text = comm_error([&] {
                for (;;) {
                  group->check_running();
                  std::this_thread::sleep_for(milliseconds(5));
                }
              });
              EXPECT_HAS(text, "leaving");
            },
            {.timeout = milliseconds(1000)});
}

TEST(GlooAbort, ADroppedOperationOfOneRankIsFoundByTheCheck) {
  run_ranks(2, [](Group world) {
    const auto faulty = std::shared_ptr<Communicator>(make_faulty_communicator(
        world, {{.kind = FaultKind::kDrop, .rank = 1, .group = "world", .sequence = 2}}));
    faulty->barrier();
    faulty->all_reduce(at::zeros({4}));  // rank 1 leaves it out
    const auto checked = make_checked_communicator(faulty, {.timeout = milliseconds(5000)});
    const auto call = [&] {
      faulty->rank() == 0 ? checked->all_gather(at::zeros({2}), at::zeros({1}))
                          : checked->all_reduce(at::zeros({4}));
    };
    EXPECT_HAS(comm_error(call), "others in");
  });
}

}  // namespace
}  // namespace apus::comm
