#include "apus/comm/agreed_phase.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

using testing::run_ranks;
using World = std::shared_ptr<Communicator>;

/// What run_agreed threw, as its message; empty if nothing.
std::string message_of(Communicator& group, const std::string& what, const std::function<void()>& phase) {
  try {
    run_agreed(group, what, phase);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RunAgreed, AllRanksGoOnWhereAllAreWell) {
  run_ranks(3, [](World world) {
    int runs = 0;
    run_agreed(*world, "counting", [&] { ++runs; });
    run_agreed(*world, "counting", [&] { ++runs; });
    EXPECT_EQ(runs, 2);
  });
}

TEST(RunAgreed, TheFailedRankThrowsItsOwnErrorTheOthersLearnItsMessage) {
  run_ranks(3, [](World world) {
    const auto phase = [&] {
      if (world->rank() == 1) throw DataError("rows.jsonl", 17, "broken JSON");
    };
    if (world->rank() == 1) {
      EXPECT_THROW(run_agreed(*world, "reading", phase), DataError);
      return;
    }
    try {
      run_agreed(*world, "reading", phase);
      ADD_FAILURE() << "rank " << world->rank() << " went on alone";
    } catch (const CommError& error) {
      EXPECT_STREQ(error.what(), "rank 1: rows.jsonl:17: broken JSON");
    }
  });
}

TEST(RunAgreed, SeveralFailedRanksKeepTheirOwnErrors) {
  run_ranks(3, [](World world) {
    const int rank = world->rank();
    const std::string message = message_of(*world, "writing", [rank] {
      if (rank != 1) throw ConfigError("folder " + std::to_string(rank));
    });
    if (rank == 1) {
      EXPECT_EQ(message, "rank 0: folder 0 (and 1 more of 3 ranks)");
    } else {
      EXPECT_EQ(message, "folder " + std::to_string(rank));
    }
  });
}

TEST(RunAgreed, AFailedPhaseDoesNotSpoilTheNextOne) {
  run_ranks(2, [](World world) {
    const auto fails = [&] {
      if (world->rank() == 0) throw ConfigError("not this time");
    };
    EXPECT_NE(message_of(*world, "phase", fails), "");
    EXPECT_EQ(message_of(*world, "phase", [] {}), "");
    EXPECT_EQ(broadcast_text(*world, "still in step"), "still in step");
  });
}

TEST(RunAgreed, WithoutPeersTheOwnErrorComesBack) {
  const auto alone = make_fake_communicator({.rank = 1, .size = 4});
  EXPECT_THROW(run_agreed(*alone, "reading", [] { throw ConfigError("no"); }), ConfigError);
  EXPECT_NO_THROW(run_agreed(*alone, "reading", [] {}));
}

TEST(BroadcastText, GivesRankZerosTextToAll) {
  const std::vector<std::string> texts = {"/out/v0", "", std::string("a\0b", 3), std::string(70'000, 'x')};
  run_ranks(3, [&](World world) {
    for (const std::string& text : texts) {
      const std::string own = world->rank() == 0 ? text : "rank " + std::to_string(world->rank());
      EXPECT_TRUE(broadcast_text(*world, own) == text) << "a text of " << text.size() << " bytes";
    }
  });
}

}  // namespace
}  // namespace apus::comm
