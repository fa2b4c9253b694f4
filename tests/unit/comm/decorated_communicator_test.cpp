#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "apus/comm/fake_communicator.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

/// Writes down what passes through.
class Listening final : public DecoratedCommunicator {
 public:
  Listening(std::shared_ptr<Communicator> inner, std::shared_ptr<std::vector<std::string>> heard)
      : DecoratedCommunicator(std::move(inner)), heard_(std::move(heard)) {}

 protected:
  std::shared_ptr<Work> intercept(const OpInfo& info, const Launch& launch) override {
    heard_->push_back(name() + " " + info.text());
    return launch();
  }
  std::unique_ptr<Communicator> decorate(std::shared_ptr<Communicator> inner) const override {
    return std::make_unique<Listening>(std::move(inner), heard_);
  }

 private:
  std::shared_ptr<std::vector<std::string>> heard_;
};

TEST(DecoratedCommunicator, EveryOperationPassesThroughInterceptAndReachesTheInner) {
  const auto heard = std::make_shared<std::vector<std::string>>();
  Listening group(make_fake_communicator({.rank = 0, .size = 2, .name = "dp"}), heard);
  const at::Tensor two = at::full({2}, 4.0F);
  group.all_reduce(two, {.scale = 0.5})->wait();
  EXPECT_EQ(two[0].item<float>(), 2.0F);  // the inner did it, with the options
  group.all_gather(at::zeros({4}), two)->wait();
  group.reduce_scatter(at::zeros({1}), two, {.op = ReduceOp::kMax})->wait();
  group.broadcast(two, 1)->wait();
  group.all_to_all(at::zeros({2}), two)->wait();
  group.all_to_all_v(at::zeros({2}), two, {1, 1}, {1, 1})->wait();
  group.send_recv({{.kind = P2pKind::kSend, .peer = 1, .tensor = two}})->wait();
  group.barrier();
  const std::vector<std::string> expected = {"dp all_reduce #1 Float[2] (sum)",
                                             "dp all_gather #2 Float[4]",
                                             "dp reduce_scatter #3 Float[2] (max)",
                                             "dp broadcast #4 Float[2] (root 1)",
                                             "dp all_to_all #5 Float[2]",
                                             "dp all_to_all_v #6 Float[2]",
                                             "dp send_recv #7 Float[2] (1 transfers)",
                                             "dp barrier #8"};
  EXPECT_EQ(*heard, expected);
}

TEST(DecoratedCommunicator, GroupsMadeFromItAreDecorated) {
  const auto heard = std::make_shared<std::vector<std::string>>();
  Listening group(make_fake_communicator({.rank = 0, .size = 2, .name = "world"}), heard);
  const auto child = group.subgroup({0}, "tp");
  child->barrier();
  EXPECT_EQ(*heard, std::vector<std::string>{"tp barrier #1"});
  EXPECT_EQ(child->size(), 1);
}

TEST(DecoratedCommunicator, GroupsFormAlsoWhereARankWasInNone) {
  testing::run_ranks(3, [](std::shared_ptr<Communicator> world) {
    const auto group = make_checked_communicator(make_checked_communicator(world));
    const bool is_outside = group->rank() == 1;
    const auto outer = group->subgroup(is_outside ? std::vector<int>{} : std::vector<int>{0, 2}, "outer");
    const at::Tensor sum = at::full({1}, 1.0);
    group->subgroup({0, 1, 2}, "all")->all_reduce(sum)->wait();
    EXPECT_EQ(sum.item<float>(), 3.0F);
  });
}

TEST(DecoratedCommunicator, AbortAndStatePassThrough) {
  const auto inner =
      std::shared_ptr<Communicator>(make_fake_communicator({.rank = 0, .size = 2, .name = "w"}));
  Listening group(inner, std::make_shared<std::vector<std::string>>());
  group.set_note("step 3");
  group.abort("stop");
  EXPECT_THROW(inner->barrier(), CommError);
  EXPECT_THROW(group.check_running(), CommError);
  EXPECT_EQ(group.store(), inner->store());
  EXPECT_EQ(group.timeout(), inner->timeout());
  EXPECT_THROW(Listening(nullptr, nullptr), ConfigError);
}

}  // namespace
}  // namespace apus::comm
