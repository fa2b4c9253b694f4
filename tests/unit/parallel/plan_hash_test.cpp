#include "parallel/plan_hash.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <atomic>

#include "apus/base/error.h"
#include "tests/support/rank_threads.h"

namespace apus::parallel {
namespace {

ModelUnits model(const std::string& name, int64_t elements) {
  ModelUnits units;
  units.units.push_back({"unit", {{name, at::ones({elements}).set_requires_grad(true)}}});
  return units;
}

TEST(PlanHash, ChangesWithNamesShapesTrainabilityAndOptions) {
  const uint64_t base = plan_hash(model("a", 4), {});
  EXPECT_EQ(plan_hash(model("a", 4), {}), base);
  EXPECT_NE(plan_hash(model("b", 4), {}), base);
  EXPECT_NE(plan_hash(model("a", 5), {}), base);
  ModelUnits frozen = model("a", 4);
  frozen.units[0].parameters[0].tensor.set_requires_grad(false);
  EXPECT_NE(plan_hash(frozen, {}), base);
  EXPECT_NE(plan_hash(model("a", 4), {.policy = Zero3()}), base);
  ShardPolicy offloads = Zero3();
  offloads.residency.parameters = memory::Residency::kHost;
  EXPECT_NE(plan_hash(model("a", 4), {.policy = offloads}), plan_hash(model("a", 4), {.policy = Zero3()}));
  EXPECT_NE(plan_hash(model("a", 4), {.bucket_elements = 7}), base);
  EXPECT_NE(plan_hash(model("a", 4), {.deterministic = true}), base);
  EXPECT_NE(plan_hash(model("a", 4), {.policy = Fsdp({.reshard_after_forward = false})}),
            plan_hash(model("a", 4), {.policy = Fsdp()}));
}

TEST(PlanHash, RanksThatDifferFromTheFirstAreNamedOnAllRanks) {
  std::atomic<int> told = 0;
  testing::run_ranks(3, [&](std::shared_ptr<comm::Communicator> world) {
    try {
      agree_on_plan(*world, world->rank() == 1 ? 5 : 4);
    } catch (const ConfigError& error) {
      if (std::string(error.what()).find("rank 1 has other parameters") != std::string::npos) ++told;
    }
  });
  EXPECT_EQ(told, 3);
}

}  // namespace
}  // namespace apus::parallel
