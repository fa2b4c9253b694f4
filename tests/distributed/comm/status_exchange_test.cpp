#include "apus/comm/status_exchange.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/agreed_phase.h"
#include "apus/comm/decorators.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using testing::run_ranks;

TEST(AgreeOverGroups, EachGroupAgreesForItself) {
  run_ranks(4, [](std::shared_ptr<Communicator> world) {
    const int r = world->rank();
    const auto pair = world->subgroup(r < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, "pair");
    agree(*world, std::nullopt);
    if (r < 2) {
      EXPECT_NO_THROW(agree(*pair, std::nullopt));
    } else {
      EXPECT_THROW(agree(*pair, r == 3 ? std::optional<std::string>("bad") : std::nullopt), CommError);
    }
    agree(*world, std::nullopt);
  });
}

TEST(AgreeOverGroups, AnAbortEndsTheWait) {
  const auto start = std::chrono::steady_clock::now();
  run_ranks(2, [](std::shared_ptr<Communicator> world) {
    world->barrier();
    if (world->rank() == 1) {
      std::this_thread::sleep_for(milliseconds(100));  // rank 0 has left the barrier
      world->abort("gave up");
      return;
    }
    try {
      agree(*world, std::nullopt, {.timeout = milliseconds(20'000)});
      ADD_FAILURE() << "agreed with a rank that had aborted";
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 stopped the job: gave up"), std::string::npos)
          << error.what();
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(3000));
}

TEST(AgreeOverGroups, AMissedExchangeEndsAtTheGroupsDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const auto body = [](std::shared_ptr<Communicator> world) {
    EXPECT_EQ(world->timeout(), milliseconds(700));
    const std::shared_ptr<Communicator> pair = world->subgroup({0, 1}, "pair");
    EXPECT_EQ(pair->timeout(), milliseconds(700));
    if (world->rank() == 1) return;
    try {
      run_agreed(*make_checked_communicator(pair, {}), "reading", [] {});
      ADD_FAILURE() << "agreed with a rank that never came";
    } catch (const CommError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("after 0.7 s rank 1 has not reported on reading"), std::string::npos) << text;
      EXPECT_NE(text.find("--ddp_timeout"), std::string::npos) << text;
    }
  };
  run_ranks(2, body, {.timeout = milliseconds(700)});
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(5000));
}

}  // namespace
}  // namespace apus::comm
