#include "apus/comm/status_exchange.h"

#include <gtest/gtest.h>

#include <atomic>

#include "apus/base/error.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

/// What each of `size` ranks got from agree, given what it said; empty if nothing was thrown.
std::vector<std::string> outcomes(Store& store, const std::vector<std::optional<std::string>>& said,
                                  const AgreeOptions& options = {}) {
  const int size = static_cast<int>(said.size());
  std::vector<std::string> got(size);
  testing::run_threads(size, [&](int rank) {
    try {
      agree(store, rank, size, said[rank], options);
    } catch (const CommError& error) {
      got[rank] = error.what();
    }
  });
  return got;
}

TEST(Agree, AllWellPassesRoundAfterRound) {
  const auto store = make_hash_store();
  for (int round = 0; round < 3; ++round) {
    for (const std::string& got : outcomes(*store, {std::nullopt, std::nullopt, std::nullopt}))
      EXPECT_EQ(got, "");
  }
}

TEST(Agree, OneFailureReachesAllWithItsMessage) {
  const auto store = make_hash_store();
  for (const std::string& got : outcomes(*store, {std::nullopt, std::nullopt, "line 17: broken JSON"})) {
    EXPECT_EQ(got, "rank 2: line 17: broken JSON");
  }
  for (const std::string& got : outcomes(*store, {std::nullopt, std::nullopt})) EXPECT_EQ(got, "");
}

TEST(Agree, SeveralFailuresShowTheLowestRanksAndCountTheRest) {
  const auto store = make_hash_store();
  for (const std::string& got : outcomes(*store, {std::nullopt, "one", "two", "three"})) {
    EXPECT_EQ(got, "rank 1: one (and 2 more of 4 ranks)");
  }
}

TEST(Agree, ExchangesOfDifferentNamesAreApart) {
  const auto store = make_hash_store();
  store->set("agree/data/1/1", "ok");
  try {
    agree(*store, 0, 2, "mine", {.what = "model", .timeout = milliseconds(20)});
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 1 has not reported on model"), std::string::npos) << text;
    EXPECT_NE(text.find("--ddp_timeout"), std::string::npos) << text;
    EXPECT_NE(text.find("this rank failed: mine"), std::string::npos) << text;
  }
  EXPECT_NO_THROW(agree(*store, 0, 2, std::nullopt, {.what = "data"}));
}

TEST(Agree, RefusesARankOutsideTheGroup) {
  EXPECT_THROW(agree(*make_hash_store(), 2, 2, std::nullopt), ConfigError);
}

}  // namespace
}  // namespace apus::comm
