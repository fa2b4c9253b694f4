#include "data/step_rows.h"

#include <map>
#include <set>

#include "apus/data/packing.h"
#include "tests/unit/data/support/rows_fixture.h"
#include "tests/unit/data/support/texts.h"

namespace apus::data {
namespace {

using Values = std::vector<int64_t>;

std::shared_ptr<const Dataset> texts() {
  return make_texts(uneven_lengths(50, 30));
}

std::shared_ptr<const PackedDataset> packs() {
  return std::make_shared<PackedDataset>(texts(), PackingOptions{.packing_length = 40});
}

struct Split {
  int64_t world = 1;
  int64_t accumulation = 12;
  std::optional<CostModel> balance = {};
};

StepRows make(const std::shared_ptr<const Dataset>& dataset, const Split& split, int64_t micro = 1) {
  return StepRows(dataset, Sampler({.rows = dataset->size()}),
                  StepPlan({.rows = dataset->size(),
                            .micro_batch_rows = micro,
                            .world = split.world,
                            .accumulation = split.accumulation}),
                  split.balance);
}

/// Place and ordinal of all that the ranks take in a step.
std::set<std::pair<int64_t, int64_t>> taken(const std::shared_ptr<const Dataset>& dataset, StepRows& rows,
                                            StepPlace at) {
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (int64_t m = 0; m < rows.plan().micro_batches(at.step); ++m)
    for (int64_t rank = 0; rank < rows.plan().options().world; ++rank) {
      const MicroBatchRows part = rows.micro_batch(at, m, rank);
      size_t next = 0;
      for (const int64_t ordinal : part.ordinals)
        for (int64_t i = 0; i < dataset->rows_in(ordinal); ++i)
          pairs.emplace(part.places.at(next++), ordinal);
      EXPECT_EQ(next, part.places.size());
    }
  return pairs;
}

TEST(StepRows, ThePlaceOfARowIsTheRowsBeforeItInTheEpoch) {
  const auto dataset = packs();
  StepRows rows = make(dataset, {});
  const Values order = Sampler({.rows = dataset->size()}).order(1);
  int64_t place = 0;
  for (int64_t step = 0; step < rows.plan().steps_per_epoch(); ++step) {
    const OrderRange range = rows.plan().step_range(step);
    int64_t in_step = 0;
    for (int64_t m = 0; m < range.count; ++m) {
      const MicroBatchRows part = rows.micro_batch({1, step}, m, 0);
      EXPECT_EQ(part.ordinals, (Values{order[static_cast<size_t>(range.first + m)]}));
      for (const int64_t found : part.places) EXPECT_EQ(found, place++);
      in_step += static_cast<int64_t>(part.places.size());
    }
    EXPECT_EQ(rows.rows({1, step}), in_step);
  }
  EXPECT_EQ(place, 50);
}

TEST(StepRows, RowsAndPlacesOfAStepDoNotDependOnWorldAndBalance) {
  for (const std::shared_ptr<const Dataset>& dataset : {texts(), std::shared_ptr<const Dataset>(packs())}) {
    StepRows plain = make(dataset, {});
    const std::vector<Split> splits = {
        {2, 6}, {4, 3}, {1, 12, CostModel{}}, {2, 6, CostModel{}}, {4, 3, CostModel{.attention = 0.1}}};
    for (const Split& split : splits) {
      StepRows rows = make(dataset, split);
      for (const int64_t epoch : {0, 1})
        for (int64_t step = 0; step < plain.plan().steps_per_epoch(); ++step) {
          EXPECT_EQ(taken(dataset, rows, {epoch, step}), taken(dataset, plain, {epoch, step}));
          EXPECT_EQ(rows.rows({epoch, step}), plain.rows({epoch, step}));
        }
    }
  }
}

TEST(StepRows, BalanceEvensOutWhatRanksHaveToDo) {
  const auto dataset = texts();
  const auto worst = [&](const Split& split) {
    StepRows rows = make(dataset, split, 2);
    int64_t difference = 0;
    for (int64_t step = 0; step < rows.plan().steps_per_epoch(); ++step) {
      Values sums(2, 0);
      for (int64_t m = 0; m < rows.plan().micro_batches(step); ++m)
        for (int64_t rank = 0; rank < 2; ++rank)
          for (const int64_t ordinal : rows.micro_batch({0, step}, m, rank).ordinals)
            sums[static_cast<size_t>(rank)] += dataset->tokens(ordinal);
      difference = std::max(difference, std::abs(sums[0] - sums[1]));
    }
    return difference;
  };
  EXPECT_LT(2 * worst({2, 3, CostModel{}}), worst({2, 3}));
}

TEST(StepRows, AnswersForAnyStepInAnyOrder) {
  const auto dataset = packs();
  const Split split{2, 2, CostModel{}};
  StepRows forward = make(dataset, split), backward = make(dataset, split);
  std::map<StepPlace, Values> seen;
  const int64_t steps = forward.plan().steps_per_epoch();
  for (int64_t epoch = 0; epoch < 4; ++epoch)
    for (int64_t step = 0; step < steps; ++step)
      seen[{epoch, step}] = forward.micro_batch({epoch, step}, 0, 1).ordinals;
  for (auto at = seen.rbegin(); at != seen.rend(); ++at)
    EXPECT_EQ(backward.micro_batch(at->first, 0, 1).ordinals, at->second);
}

}  // namespace
}  // namespace apus::data
