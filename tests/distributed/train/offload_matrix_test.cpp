// States and activations on the host, in whole trainings: as one rank trains, and to the bit as the same
// ranks do without.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/equality_matrix.h"

namespace apus::testing {
namespace {

using memory::Residency;
using parallel::Recompute;

constexpr int64_t kSteps = 20;

struct OffloadCell {
  std::string name;
  MatrixCell cell;
  memory::StateResidency states = {};
  Residency activations = Residency::kDevice;
};

void PrintTo(const OffloadCell& the, std::ostream* out) {
  *out << the.name;
}

class OffloadMatrix : public ::testing::TestWithParam<OffloadCell> {};

TEST_P(OffloadMatrix, EqualsOneRankAndToTheBitItselfWithout) {
  const OffloadCell& the = GetParam();
  const TinyRun without = the.cell.run(kSteps);
  TinyRun run = without;
  run.adjust = [&](parallel::ShardedModelOptions& options) {
    options.policy.residency = the.states;
    options.activations = the.activations;
  };
  const TinyResult found = train_on(the.cell.world, run), same = train_on(the.cell.world, without);
  EXPECT_EQ(found.losses, same.losses);
  EXPECT_EQ(found.grad_norms, same.grad_norms);
  ASSERT_EQ(found.after.size(), same.after.size());
  for (size_t i = 0; i < found.after.size(); ++i)
    EXPECT_TRUE(found.after[i].tensor.equal(same.after[i].tensor)) << found.after[i].name;
  const TinyResult& wanted = one_rank(the.cell.job, kSteps);
  expect_same_numbers(found, wanted, the.cell.job, the.name);
  expect_same_weights(found, wanted, run, reference_layout(run), the.name);
}

std::vector<OffloadCell> cells() {
  using enum Job;
  const memory::StateResidency optimizer{.optimizer = Residency::kHost};
  const memory::StateResidency gradients{.optimizer = Residency::kHost, .gradients = Residency::kHost};
  const memory::StateResidency parameters{.optimizer = Residency::kHost, .parameters = Residency::kHost};
  const memory::StateResidency all{Residency::kHost, Residency::kHost, Residency::kHost};
  const parallel::ShardPolicy zero2 = parallel::Zero2(), zero3 = parallel::Zero3();
  const auto block = Recompute::kBlock, partial = Recompute::kPartial, none = Recompute::kNone;
  return {
      {"Zero2Optimizer", {zero2, kFullSft, 2, none, Cut::kSingleRows}, optimizer},
      {"Zero2OptimizerLora", {zero2, kLoraDpo, 3, partial, Cut::kPairs}, optimizer},
      {"Zero2Gradients", {zero2, kFullDpo, 2, none, Cut::kWhole}, gradients},
      {"Zero2Activations", {zero2, kFullDpo, 4, block, Cut::kSingleRows}, {}, Residency::kHost},
      {"Zero2ActivationsLora", {zero2, kLoraSft, 1, block, Cut::kPairs}, {}, Residency::kHost},
      {"Zero2Everything", {zero2, kFullSft, 3, block, Cut::kPairs}, gradients, Residency::kHost},
      {"Zero3Optimizer", {zero3, kFullSft, 3, none, Cut::kPairs}, optimizer},
      {"Zero3OptimizerLora", {zero3, kLoraDpo, 2, block, Cut::kSingleRows}, optimizer},
      {"Zero3Parameters", {zero3, kFullDpo, 4, partial, Cut::kSingleRows}, parameters},
      {"Zero3ParametersLora", {zero3, kLoraSft, 3, block, Cut::kWhole}, parameters},
      {"Zero3Activations", {zero3, kFullSft, 2, block, Cut::kPairs}, {}, Residency::kHost},
      {"Zero3Everything", {zero3, kLoraDpo, 4, block, Cut::kWhole}, all, Residency::kHost},
      {"Zero3EverythingFull", {zero3, kFullSft, 2, block, Cut::kSingleRows}, all, Residency::kHost},
  };
}

INSTANTIATE_TEST_SUITE_P(Cells, OffloadMatrix, ::testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace apus::testing
