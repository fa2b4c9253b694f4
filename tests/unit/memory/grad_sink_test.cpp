#include "apus/memory/grad_sink.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <string>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

class GradSinkTest : public ::testing::Test {
 protected:
  GradSinkTest() : sink_({&first_, &second_}) {
    sink_.set_on_ready([this](ParamGroup& group) { ready_ += group.options().name; });
  }

  static at::Tensor leaf() { return at::ones({2}).set_requires_grad(true); }

  at::Tensor a_ = leaf(), b_ = leaf(), c_ = leaf();
  ParamGroup first_{{{"a", a_}, {"b", b_}}, {.name = "1"}};
  ParamGroup second_{{{"c", c_}}, {.name = "2"}};
  GradSink sink_;
  std::string ready_;
};

TEST_F(GradSinkTest, AGroupIsReadyWhenAllAnnouncedUsesHaveAdded) {
  sink_.expect(a_);
  sink_.expect(b_);
  sink_.add(a_, at::ones({2}));
  EXPECT_EQ(ready_, "");
  sink_.add(b_, at::ones({2}));
  EXPECT_EQ(ready_, "1");
}

TEST_F(GradSinkTest, ATiedWeightWaitsForBothUses) {
  sink_.expect(a_);
  sink_.expect(a_);
  sink_.add(a_, at::ones({2}));
  EXPECT_EQ(ready_, "");
  sink_.add(a_, at::ones({2}));
  EXPECT_EQ(ready_, "1");
  EXPECT_EQ(first_.begin_reduce().sum().item<double>(), 4.0);
}

TEST_F(GradSinkTest, GroupsBecomeReadyInListOrderWhateverCompletesFirst) {
  // pitfalls.md row 24: the order of collectives must not depend on data
  sink_.expect(a_);
  sink_.expect(c_);
  sink_.add(c_, at::ones({2}));
  EXPECT_EQ(ready_, "");
  sink_.add(a_, at::ones({2}));
  EXPECT_EQ(ready_, "12");
}

TEST_F(GradSinkTest, FlushMakesUnusedGroupsReadyWithZeros) {
  sink_.expect(c_);
  sink_.add(c_, at::ones({2}));
  sink_.flush();
  EXPECT_EQ(ready_, "12");
  EXPECT_EQ(first_.begin_reduce().sum().item<double>(), 0.0);
  EXPECT_EQ(second_.begin_reduce().sum().item<double>(), 2.0);
}

TEST_F(GradSinkTest, EveryMicroBatchStartsAnew) {
  for (int micro = 0; micro < 2; ++micro) {
    sink_.expect(a_);
    sink_.add(a_, at::ones({2}));
    sink_.flush();
  }
  EXPECT_EQ(ready_, "1212");
}

TEST_F(GradSinkTest, RefusesWhatNobodyAnnounced) {
  EXPECT_THROW(sink_.add(a_, at::ones({2})), Error);
  EXPECT_THROW(sink_.expect(at::ones({2})), Error);
  EXPECT_TRUE(sink_.takes(a_));
  EXPECT_FALSE(sink_.takes(at::ones({2})));
}

TEST_F(GradSinkTest, AUseAfterItsGroupWasReducedIsABug) {
  sink_.expect(a_);
  sink_.add(a_, at::ones({2}));
  EXPECT_THROW(sink_.expect(b_), Error);
}

TEST_F(GradSinkTest, AnOperationMayWriteAGradientItself) {
  sink_.expect(a_);
  sink_.expect(b_);
  const std::optional<GradTarget> target = sink_.target(a_);
  ASSERT_TRUE(target);
  EXPECT_TRUE(target->is_fresh);
  EXPECT_EQ(target->grad.sizes(), a_.sizes());
  target->grad.fill_(3.0);
  sink_.add(a_, {});
  EXPECT_EQ(ready_, "") << "b's use is still to come";
  sink_.flush();
  EXPECT_EQ(first_.begin_reduce().sum().item<double>(), 6.0);
}

TEST_F(GradSinkTest, ASecondUseAddsToWhatTheFirstWrote) {
  for (int use = 0; use < 2; ++use) sink_.expect(a_);
  sink_.target(a_)->grad.fill_(1.0);
  sink_.add(a_, {});
  const GradTarget again = *sink_.target(a_);
  EXPECT_FALSE(again.is_fresh);
  again.grad.add_(1.0);
  sink_.add(a_, at::ones({2}));
  EXPECT_EQ(first_.begin_reduce().sum().item<double>(), 6.0) << "two operations and the tape";
}

TEST_F(GradSinkTest, OnlyItsParametersHaveATargetAndOnlyUntilTheirGroupIsReduced) {
  EXPECT_FALSE(sink_.target(at::ones({2})));
  sink_.expect(a_);
  sink_.add(a_, at::ones({2}));
  EXPECT_EQ(ready_, "1");
  EXPECT_THROW(sink_.target(a_), Error);
}

TEST_F(GradSinkTest, AGroupThatIsStillReducedIsWaitedFor) {
  first_.begin_reduce();
  EXPECT_THROW(sink_.target(a_), Error) << "nobody ends the reduction";
  sink_.set_on_busy([](ParamGroup& group) { group.finish_reduce({}); });
  EXPECT_TRUE(sink_.target(a_));
  EXPECT_EQ(first_.grad_state(), GradState::kPartial);
}

}  // namespace
}  // namespace apus::memory
