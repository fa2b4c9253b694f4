#include "comm/abort_domain.h"

#include <gtest/gtest.h>

#include <thread>

#include "apus/base/error.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

OpInfo all_reduce(int64_t sequence) {
  return {.kind = OpKind::kAllReduce,
          .sequence = sequence,
          .dtype = "Float",
          .shape = {8},
          .payload_bytes = 32,
          .detail = "sum"};
}

std::shared_ptr<GroupState> group_of(int rank, int size) {
  std::vector<int> members;
  for (int r = 0; r < size; ++r) members.push_back(r);
  return std::make_shared<GroupState>("dp", "group", rank, members);
}

std::string raised(const AbortDomain& domain, const GroupState& group) {
  try {
    domain.raise(group, all_reduce(7));
  } catch (const CommError& error) {
    return error.what();
  }
}

TEST(AbortDomain, PeersLearnTheCauseAndItsRank) {
  const auto store = make_hash_store();
  AbortDomain mine(store, 0, nullptr);
  AbortDomain other(store, 1, nullptr);
  EXPECT_FALSE(other.poll());
  mine.abort("out of disk");
  EXPECT_TRUE(mine.poll());
  EXPECT_TRUE(other.poll_for(milliseconds(1000)));
  EXPECT_EQ(raised(mine, *group_of(0, 2)),
            "dp all_reduce #7 (peer 0): this rank stopped the job: out of disk");
  EXPECT_EQ(raised(other, *group_of(1, 2)), "dp all_reduce #7 (peer 0): rank 0 stopped the job: out of disk");
}

TEST(AbortDomain, TheFirstCauseStays) {
  const auto store = make_hash_store();
  AbortDomain mine(store, 0, nullptr);
  AbortDomain other(store, 1, nullptr);
  AbortDomain third(store, 2, nullptr);
  mine.abort("first");
  other.abort("second");
  mine.abort("third");
  ASSERT_TRUE(third.poll_for(milliseconds(1000)));
  EXPECT_NE(raised(third, *group_of(2, 3)).find("rank 0 stopped the job: first"), std::string::npos);
}

TEST(AbortDomain, PollLooksAtTheStoreRarely) {
  class Counting final : public Store {
   public:
    void set(const std::string&, const std::string&) override {}
    std::optional<std::string> try_get(const std::string&) override { return ++looks, std::nullopt; }
    int64_t add(const std::string&, int64_t) override { return 1; }
    bool check(const std::vector<std::string>&) override { return false; }
    bool delete_key(const std::string&) override { return false; }
    int looks = 0;
  };
  const auto store = std::make_shared<Counting>();
  AbortDomain domain(store, 0, nullptr);
  for (int i = 0; i < 1000; ++i) domain.poll();
  EXPECT_GE(store->looks, 1);
  EXPECT_LE(store->looks, 3);
}

TEST(AbortDomain, AStoreThatIsGoneDoesNotEndTheJobByItself) {
  class Gone final : public Store {
   public:
    void set(const std::string&, const std::string&) override { throw CommError("gone"); }
    std::optional<std::string> try_get(const std::string&) override { throw CommError("gone"); }
    int64_t add(const std::string&, int64_t) override { throw CommError("gone"); }
    bool check(const std::vector<std::string>&) override { throw CommError("gone"); }
    bool delete_key(const std::string&) override { throw CommError("gone"); }
  };
  const auto logger = std::make_shared<CaptureLogger>();
  AbortDomain domain(std::make_shared<Gone>(), 0, logger);
  EXPECT_FALSE(domain.poll());
  EXPECT_TRUE(logger->contains("no longer reaches the store"));
  domain.abort("late trouble");
  EXPECT_TRUE(domain.poll());
  EXPECT_TRUE(logger->contains("could not tell its peers"));
  AbortDomain waiting(std::make_shared<Gone>(), 1, logger);
  waiting.deadline(*group_of(1, 2), all_reduce(3), milliseconds(10));
  EXPECT_NE(raised(waiting, *group_of(1, 2)).find("the store does not answer"), std::string::npos);
}

TEST(AbortDomain, TheDeadlineReportNamesWhoIsBehindAndWhoIsSilent) {
  const auto store = make_hash_store();
  const auto logger = std::make_shared<CaptureLogger>();
  AbortDomain mine(store, 0, logger);
  const auto group = group_of(0, 4);
  mine.add_group(group);
  group->started(all_reduce(118));
  mine.set_note("step 12, rows 40 to 47");
  // Rank 1 waits in the same operation, rank 2 in the one before, rank 3 never looks.
  std::vector<std::string> seen(3);
  std::thread peers([&] {
    testing::run_threads(3, [&](int rank) {
      if (rank == 0) return;
      AbortDomain domain(store, rank, nullptr);
      const auto own = group_of(rank, 4);
      domain.add_group(own);
      own->started(all_reduce(rank == 1 ? 118 : 117));
      if (domain.poll_for(milliseconds(5000))) seen[rank] = raised(domain, *own);
    });
  });
  mine.deadline(*group, all_reduce(118), milliseconds(1500));
  peers.join();
  const std::string text = raised(mine, *group);
  EXPECT_NE(text.find("rank 0 of group dp (4 ranks) waited 1.5 s in all_reduce #118 Float[8] (sum)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("step 12, rows 40 to 47"), std::string::npos) << text;
  EXPECT_NE(
      text.find("did not arrive: rank 2 (last in all_reduce #117 Float[8] (sum)), rank 3 (did not answer"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("rank 1"), std::string::npos) << text;
  EXPECT_TRUE(logger->contains("did not arrive: rank 2"));
  for (int rank : {1, 2}) {
    EXPECT_NE(seen[rank].find("rank 0 stopped the job: timeout"), std::string::npos) << seen[rank];
    EXPECT_NE(seen[rank].find("did not arrive: rank 2"), std::string::npos) << seen[rank];
  }
}

TEST(AbortDomain, AnotherThreadOfTheSameRankTakesTheWholeReport) {
  const auto store = make_hash_store();
  AbortDomain domain(store, 0, nullptr);
  const auto group = group_of(0, 2);
  domain.add_group(group);
  group->started(all_reduce(5));
  std::thread watch([&] { domain.deadline(*group, all_reduce(5), milliseconds(100)); });
  std::thread peer([&] {  // answers while the report is being written
    std::this_thread::sleep_for(milliseconds(200));
    store->set("group/progress/1", "4 all_reduce #4");
  });
  EXPECT_TRUE(domain.poll_for(milliseconds(5000)));
  const std::string seen = raised(domain, *group);
  watch.join();
  peer.join();
  EXPECT_NE(seen.find("did not arrive: rank 1 (last in all_reduce #4)"), std::string::npos) << seen;
}

TEST(GroupState, ProgressIsTheLastOperation) {
  const auto group = group_of(0, 2);
  EXPECT_EQ(group->progress(), "0");
  group->started(all_reduce(3));
  EXPECT_EQ(group->progress(), "3 all_reduce #3 Float[8] (sum)");
}

}  // namespace
}  // namespace apus::comm
