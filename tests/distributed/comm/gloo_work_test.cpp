#include "comm/gloo_work.h"

#include <gtest/gtest.h>

#include <thread>

#include "apus/base/error.h"
#include "tests/distributed/comm/support/waiting_work.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using testing::flight_of;
using testing::WaitingWork;

class GlooWorkTest : public ::testing::Test {
 protected:
  std::unique_ptr<GlooWork> work(milliseconds timeout, std::function<void()> finish = nullptr) {
    const OpInfo info{.kind = OpKind::kBroadcast,
                      .sequence = 4,
                      .dtype = "Float",
                      .shape = {2},
                      .payload_bytes = 8,
                      .detail = "root 0"};
    return std::make_unique<GlooWork>(GlooWork::Context{domain_, group_, timeout}, info, flight_of(inner_),
                                      std::move(finish));
  }
  std::string failure(GlooWork& work) {
    try {
      work.wait();
    } catch (const CommError& error) {
      EXPECT_EQ(error.place().group, "dp");
      EXPECT_EQ(error.place().operation, "broadcast");
      EXPECT_EQ(error.place().sequence, 4);
      return error.what();
    }
    return "nothing was thrown";
  }

  std::shared_ptr<Store> store_ = make_hash_store();
  std::shared_ptr<AbortDomain> domain_ = std::make_shared<AbortDomain>(store_, 1, nullptr);
  std::shared_ptr<GroupState> group_ = std::make_shared<GroupState>("dp", "group", 1, std::vector<int>{0, 1});
  c10::intrusive_ptr<WaitingWork> inner_ = c10::make_intrusive<WaitingWork>();
};

TEST_F(GlooWorkTest, FinishRunsOnceAfterTheFlightHasLanded) {
  int finished = 0;
  const auto pending = work(milliseconds(5000), [&] { ++finished; });
  EXPECT_FALSE(pending->is_completed());
  EXPECT_EQ(finished, 0);
  std::thread peer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    inner_->done = true;
  });
  pending->wait();
  peer.join();
  pending->wait();
  EXPECT_EQ(finished, 1);
}

TEST_F(GlooWorkTest, AnAbortEndsTheWaitAndFinishDoesNotRun) {
  const auto pending = work(milliseconds(60'000), [] { ADD_FAILURE() << "finish ran"; });
  AbortDomain(store_, 0, nullptr).abort("elsewhere");
  EXPECT_NE(failure(*pending).find("rank 0 stopped the job: elsewhere"), std::string::npos);
  EXPECT_TRUE(pending->is_completed());
  inner_->done = true;
}

TEST_F(GlooWorkTest, ALateCauseIsPreferredToTheBrokenConnection) {
  inner_->error = "Connection closed by peer";
  inner_->done = true;
  std::thread peer([&] {
    std::this_thread::sleep_for(milliseconds(100));
    AbortDomain(store_, 0, nullptr).abort("the real cause");
  });
  const auto pending = work(milliseconds(5000));
  const std::string text = failure(*pending);
  peer.join();
  EXPECT_NE(text.find("the real cause"), std::string::npos) << text;
  EXPECT_EQ(text.find("Connection closed"), std::string::npos) << text;
}

TEST_F(GlooWorkTest, WithoutACauseTheConnectionsErrorIsReportedInOneLine) {
  inner_->error = "Connection closed by peer\nframe #0";
  inner_->done = true;
  const auto pending = work(milliseconds(5000));
  const std::string text = failure(*pending);
  EXPECT_NE(text.find("failed: Connection closed by peer (has a peer died?)"), std::string::npos) << text;
  EXPECT_EQ(text.find("frame"), std::string::npos) << text;
  AbortDomain other(store_, 0, nullptr);
  EXPECT_TRUE(other.poll());
}

TEST_F(GlooWorkTest, AFailureInFinishIsThrownEachTime) {
  inner_->done = true;
  const auto pending = work(milliseconds(5000), [] { throw ShapeError("in finish"); });
  EXPECT_THROW(pending->wait(), ShapeError);
  EXPECT_THROW(pending->wait(), ShapeError);
}

}  // namespace
}  // namespace apus::comm
