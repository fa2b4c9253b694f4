#include "apus/parallel/gatherer.h"

#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "apus/comm/fake_communicator.h"

namespace apus::parallel {
namespace {

using memory::ShardState;

/// Six units on rank 0 of 2, on a fake communicator: 0 and 5 have slots of their own, the head reads unit 0
/// too.
class GathererTest : public ::testing::Test {
 protected:
  explicit GathererTest(GathererOptions options = {.poison = true},
                        memory::Residency residency = memory::Residency::kDevice) {
    std::vector<GatherUnit> plan;
    for (int unit = 0; unit < 6; ++unit) {
      buffers_.push_back(
          std::make_unique<memory::ShardedBuffer>("unit", 16, memory::ShardPlace{0, 2}, at::kCPU, residency));
      plan.push_back({.buffers = {buffers_.back().get()}, .own_slot = unit == 0 || unit == 5});
    }
    plan[5].also_reads = {0};
    gatherer_ = std::make_unique<Gatherer>(std::move(plan), *recorded_, options);
    log_->clear();
  }
  std::string states() const {
    std::string text;
    for (const auto& buffer : buffers_) text += "SGR"[static_cast<int>(buffer->state())];
    return text;
  }
  int64_t gathers() const { return log_->count(comm::OpKind::kAllGather); }

  std::shared_ptr<comm::CommLog> log_ = comm::CommLog::create();
  std::unique_ptr<comm::Communicator> recorded_ =
      comm::make_recorded_communicator(comm::make_fake_communicator({.size = 2}), log_);
  std::vector<std::unique_ptr<memory::ShardedBuffer>> buffers_;
  std::unique_ptr<Gatherer> gatherer_;
};

TEST_F(GathererTest, ForwardHoldsTheUnitAndStartsTheNext) {
  auto hold = gatherer_->forward(1);
  EXPECT_EQ(states(), "SRGSSS");
  hold.end();
  EXPECT_EQ(states(), "SSGSSS");
  hold = gatherer_->forward(2);
  EXPECT_EQ(states(), "SSRGSS") << "at most two units that share slots";
  EXPECT_EQ(gathers(), 3);
}

TEST_F(GathererTest, BackwardStartsTheUnitThatFollowsThere) {
  const auto hold = gatherer_->backward(3, 2);
  EXPECT_EQ(states(), "SSGRSS");
  const auto none = gatherer_->backward(0, std::nullopt);
  EXPECT_EQ(states(), "RSGRSS");
}

TEST_F(GathererTest, ATiedUnitIsGatheredWithItsReaderAndReleasedWithTheLast) {
  auto head = gatherer_->forward(5);
  EXPECT_EQ(states(), "RSSSSR");
  auto embedding = gatherer_->backward(0, std::nullopt);
  head.end();
  EXPECT_EQ(states(), "RSSSSS");
  embedding.end();
  EXPECT_EQ(states(), "SSSSSS");
}

TEST_F(GathererTest, OnlyTheLastUnitsStayForBackward) {
  EXPECT_FALSE(gatherer_->keeps_for_backward(3));
  EXPECT_TRUE(gatherer_->keeps_for_backward(4));
  EXPECT_TRUE(gatherer_->keeps_for_backward(5));
}

TEST_F(GathererTest, AKeptUnitIsNotGatheredAgain) {
  auto kept = gatherer_->forward(4);
  const int64_t before = gathers();
  auto again = gatherer_->backward(4, std::nullopt);
  EXPECT_EQ(gathers(), before);
  kept.end();
  EXPECT_EQ(buffers_[4]->state(), ShardState::kReady);
}

TEST_F(GathererTest, AReleasedSlotIsPoisoned) {
  const at::Tensor parameter = buffers_[1]->view(0, {4}, at::kFloat);
  auto hold = gatherer_->forward(1);
  const float* memory = parameter.const_data_ptr<float>();
  hold.end();
  EXPECT_TRUE(std::isnan(*memory)) << "the slot still exists and reads as NaN";
  EXPECT_THROW(parameter.clone(), c10::Error) << "the parameter cannot be read at all";
}

TEST_F(GathererTest, ResetReleasesEvenWhatIsHeld) {
  // pitfalls.md row 32: values that were gathered before a load or an update must not be read after it
  auto hold = gatherer_->forward(4);
  gatherer_->reset();
  EXPECT_EQ(states(), "SSSSSS");
  const auto next = gatherer_->forward(4);
  hold.end();
  EXPECT_EQ(buffers_[4]->state(), ShardState::kReady) << "an old hold does not release a new gather";
}

TEST_F(GathererTest, AUnitThatWasGatheredAheadAndNeverRunMakesRoom) {
  gatherer_->forward(1).end();  // unit 2 is under way
  auto first = gatherer_->backward(4, std::nullopt);
  const auto second = gatherer_->backward(3, std::nullopt);
  EXPECT_EQ(states(), "SSSRRS");
}

/// Every rank keeps units whole between forward and backward.
class KeepingGatherer : public GathererTest {
 protected:
  KeepingGatherer() : GathererTest({.backward_ranks = 1}) {}
};

TEST_F(KeepingGatherer, HasASlotForEveryUnit) {
  std::vector<Gatherer::Hold> holds;
  for (size_t unit = 0; unit < 6; ++unit) {
    holds.push_back(gatherer_->forward(unit));
    EXPECT_TRUE(gatherer_->keeps_for_backward(unit));
  }
  EXPECT_EQ(states(), "RRRRRR");
  EXPECT_EQ(gathers(), 6);
}

TEST(LoneGatherer, ReleasesBetweenForwardAndBackwardUnlessToldToKeep) {
  const auto alone = comm::make_fake_communicator({});
  for (const int backward_ranks : {0, 1}) {
    std::vector<std::unique_ptr<memory::ShardedBuffer>> buffers;
    std::vector<GatherUnit> plan;
    for (int unit = 0; unit < 5; ++unit) {
      buffers.push_back(std::make_unique<memory::ShardedBuffer>("unit", 16, memory::ShardPlace{0, 1},
                                                                at::kCPU, memory::Residency::kHost));
      plan.push_back({.buffers = {buffers.back().get()}});
    }
    Gatherer gatherer(std::move(plan), *alone, {.backward_ranks = backward_ranks, .poison = true});
    EXPECT_EQ(gatherer.keeps_for_backward(1), backward_ranks == 1);
    gatherer.forward(1).end();
    EXPECT_EQ(buffers[1]->state(), ShardState::kSharded);
  }
}

/// Nothing is started ahead.
class EagerGatherer : public GathererTest {
 protected:
  EagerGatherer() : GathererTest({.prefetch = false}) {}
};

TEST_F(EagerGatherer, GathersWhatIsRunAlone) {
  const auto hold = gatherer_->forward(1);
  EXPECT_EQ(states(), "SRSSSS");
}

/// The own ranges lie on the host.
class HostGatherer : public GathererTest {
 protected:
  HostGatherer()
      : GathererTest({.poison = true, .before_gather = [this](size_t unit) { before_.push_back(unit); }},
                     memory::Residency::kHost) {}
  std::vector<size_t> before_;
};

TEST_F(HostGatherer, CopiesTheOwnRangeIntoItsPlaceAndGathersFromThere) {
  buffers_[1]->shard().fill_(7);
  buffers_[2]->shard().fill_(9);
  auto hold = gatherer_->forward(1);
  EXPECT_EQ(gathers(), 2) << "the next unit's too";
  EXPECT_EQ(buffers_[1]->view(0, {8}, at::kByte).min().item<int>(), 7);
  hold.end();
  hold = gatherer_->forward(2);
  EXPECT_EQ(buffers_[2]->view(0, {8}, at::kByte).max().item<int>(), 9);
}

TEST_F(HostGatherer, SaysWhichUnitsItIsAboutToRead) {
  gatherer_->forward(1).end();
  EXPECT_EQ(before_, (std::vector<size_t>{1, 2}));
  gatherer_->forward(2).end();
  EXPECT_EQ(before_, (std::vector<size_t>{1, 2, 3})) << "unit 2 was under way";
}

TEST(Gatherer, OneRankAloneCopiesAndGathersNothing) {
  const auto log = comm::CommLog::create();
  const auto alone = comm::make_recorded_communicator(comm::make_fake_communicator({}), log);
  memory::ShardedBuffer buffer("unit", 16, {0, 1}, at::kCPU, memory::Residency::kHost);
  buffer.shard().fill_(5);
  Gatherer gatherer({{.buffers = {&buffer}}}, *alone, {});
  const auto hold = gatherer.forward(0);
  EXPECT_EQ(buffer.view(0, {16}, at::kByte).min().item<int>(), 5);
  EXPECT_TRUE(log->records().empty());
}

TEST(Gatherer, ASecondaryPartMustDivideTheAxis) {
  const auto four = comm::make_fake_communicator({.size = 4});
  EXPECT_THROW(Gatherer({}, *four, {.backward_ranks = 3}), ConfigError);
}

}  // namespace
}  // namespace apus::parallel
