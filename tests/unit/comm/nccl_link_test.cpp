#include "comm/nccl_link.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "comm/nccl_connect.h"
#include "comm/nccl_linked.h"
#include "tests/support/fake_nccl.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using testing::FakeNccl;

std::shared_ptr<NcclLink> link_of_one(FakeNccl& fake, char name) {
  auto link = std::make_shared<NcclLink>(fake.backend());
  NcclUniqueId id;
  id.bytes[0] = name;
  EXPECT_EQ(link->connect(1, id, 0), NcclResult::kSuccess);
  return link;
}

bool never() {
  return false;
}

TEST(NcclLink, ClosesInGoodOrder) {
  FakeNccl fake;
  fake.finalize_polls = 2;
  const auto link = link_of_one(fake, 'a');
  EXPECT_TRUE(link->close(milliseconds(1000), never));
  EXPECT_TRUE(link->gone());
  EXPECT_EQ(link->call([](NcclComm) { return NcclResult::kSuccess; }), NcclResult::kInvalidUsage);
  EXPECT_EQ(fake.open_comms(), 0);
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclLink, GivesUpClosingWhenTold) {
  FakeNccl fake;
  fake.finalize_polls = FakeNccl::kForever;
  const auto link = link_of_one(fake, 'a');
  EXPECT_FALSE(link->close(std::chrono::hours(1), [] { return true; }));
  EXPECT_FALSE(link->gone());
  NcclLink::abort_links({link});
  EXPECT_TRUE(link->gone());
  EXPECT_EQ(fake.open_comms(), 0);
}

TEST(NcclLink, AFailedCommunicatorIsNotFinalized) {
  FakeNccl fake;
  const auto link = link_of_one(fake, 'a');
  fake.fail(0, NcclResult::kInternalError);
  EXPECT_FALSE(link->close(milliseconds(1000), never));
  EXPECT_TRUE(fake.calls("finalize").empty());
}

TEST(NcclLink, AllAreMarkedBeforeAnyIsAborted) {
  FakeNccl fake;
  const std::vector<std::shared_ptr<NcclLink>> links = {link_of_one(fake, 'a'), link_of_one(fake, 'b')};
  int marked = 0;
  fake.on_abort = [&] {
    for (const auto& link : links) marked += link->marked() ? 1 : 0;
  };
  NcclLink::abort_links(links);
  EXPECT_EQ(marked, 4);
  for (const auto& link : links) {
    EXPECT_TRUE(link->gone());
    EXPECT_EQ(link->state(), NcclResult::kInvalidUsage);
    EXPECT_EQ(link->connect(1, {}, 0), NcclResult::kInvalidUsage);
  }
  NcclLink::abort_links(links);
  EXPECT_EQ(fake.calls("abort").size(), 2u);
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclLink, AnAbortGoesOverTheHeadOfACallThatHangs) {
  FakeNccl fake;
  const auto link = link_of_one(fake, 'a');
  std::atomic<bool> inside{false}, released{false};
  std::thread caller([&] {
    link->call([&](NcclComm) {
      inside = true;
      while (!released) std::this_thread::sleep_for(milliseconds(1));
      return NcclResult::kSuccess;
    });
  });
  while (!inside) std::this_thread::yield();
  NcclLink::abort_links({link}, milliseconds(50));
  EXPECT_EQ(fake.calls("abort").size(), 1u);
  released = true;
  caller.join();
}

TEST(NcclLink, ACallersCommunicatorIsLeftAsItIs) {
  FakeNccl fake;
  NcclLink link(fake.backend());
  const GroupState group("dp", "group", 1, {0, 1});
  const auto backend = fake.backend();
  EXPECT_THROW(adopt_link(link, *backend, group, fake.make_comm(1, 0)), ConfigError);
  NcclLink other(backend);
  other.adopt(fake.make_comm(1, 0));
  EXPECT_TRUE(other.close(milliseconds(0), never));
  EXPECT_TRUE(fake.calls("finalize").empty());
}

TEST(NcclLinked, IsThereOnlyInABuildWithCuda) {
  try {
    const NcclBackend backend = linked_nccl();
    EXPECT_GE(backend.nccl.version(), 21800);
  } catch (const NotSupported& error) {
    EXPECT_NE(std::string(error.what()).find("configure with -DAPUS_CUDA=ON"), std::string::npos);
  }
}

}  // namespace
}  // namespace apus::comm
