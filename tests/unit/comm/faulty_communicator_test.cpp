#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "apus/comm/fake_communicator.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Communicator> faulty(Fault fault) {
  return make_faulty_communicator(make_fake_communicator({.rank = 1, .size = 2, .name = "dp"}), {fault});
}

TEST(FaultyCommunicator, ThrowsAtTheGivenOperationOnly) {
  const auto group = faulty({.kind = FaultKind::kThrow, .rank = 1, .group = "dp", .sequence = 2});
  group->barrier();
  try {
    group->barrier();
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    EXPECT_EQ(error.place().sequence, 2);
    EXPECT_NE(std::string(error.what()).find("injected fault"), std::string::npos);
  }
  EXPECT_NO_THROW(group->barrier());
}

TEST(FaultyCommunicator, DroppedOperationsDoNotReachTheInner) {
  const auto group = faulty({.kind = FaultKind::kDrop, .rank = 1, .group = "dp", .sequence = 1});
  const at::Tensor tensor = at::full({1}, 2.0F);
  group->all_reduce(tensor, {.scale = 10.0})->wait();
  EXPECT_EQ(tensor.item<float>(), 2.0F);
  group->all_reduce(tensor, {.scale = 10.0})->wait();
  EXPECT_EQ(tensor.item<float>(), 20.0F);
}

TEST(FaultyCommunicator, DelaysAndOtherRanksAndGroupsPass) {
  const auto group =
      faulty({.kind = FaultKind::kDelay, .rank = 1, .group = "dp", .sequence = 1, .delay = milliseconds(30)});
  const auto start = std::chrono::steady_clock::now();
  group->barrier();
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(30));
  EXPECT_NO_THROW(faulty({.rank = 0, .group = "dp"})->barrier());
  EXPECT_NO_THROW(faulty({.rank = 1, .group = "tp"})->barrier());
  const auto child = faulty({.rank = 0, .group = "tp"})->subgroup({1}, "tp");
  EXPECT_THROW(child->barrier(), CommError);
}

}  // namespace
}  // namespace apus::comm
