#include "apus/parallel/group_plan.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

nn::NamedParameter parameter(const std::string& name, int64_t elements, at::ScalarType dtype = at::kFloat) {
  return {name, at::ones({elements}, dtype).set_requires_grad(true)};
}

ModelUnits units_of(std::vector<std::vector<nn::NamedParameter>> lists) {
  ModelUnits model;
  for (auto& list : lists) model.units.push_back({"unit", std::move(list)});
  return model;
}

std::string text(const std::vector<std::vector<memory::GroupParameter>>& groups) {
  std::string result;
  for (const auto& group : groups) {
    for (const auto& item : group) result += item.name;
    result += "|";
  }
  return result;
}

TEST(GroupPlan, OneBucketTakesAllFromTheLastUnitOn) {
  const ModelUnits model = units_of({{parameter("e", 10)}, {parameter("a", 10)}, {parameter("h", 10)}});
  EXPECT_EQ(text(plan_groups(model, 1000)), "hae|");
}

TEST(GroupPlan, UnitsAreNeverSplitAndBucketsStayWithinTheirSize) {
  const ModelUnits model =
      units_of({{parameter("e", 50)}, {parameter("a", 10), parameter("b", 10)}, {parameter("h", 10)}});
  EXPECT_EQ(text(plan_groups(model, 30)), "hab|e|");
  EXPECT_EQ(text(plan_groups(model, 1)), "h|ab|e|");
}

TEST(GroupPlan, ATiedWeightBelongsToTheUnitThatCompletesLast) {
  // pitfalls.md row 29
  const nn::NamedParameter tied = parameter("e", 10);
  const ModelUnits model = units_of({{tied}, {parameter("a", 10)}, {parameter("n", 1), tied}});
  EXPECT_EQ(text(plan_groups(model, 10)), "n|a|e|");
}

TEST(GroupPlan, FrozenParametersAreLeftOut) {
  ModelUnits model = units_of({{parameter("e", 10)}, {parameter("a", 10)}, {parameter("h", 10)}});
  model.units[0].parameters[0].tensor.set_requires_grad(false);
  EXPECT_EQ(text(plan_groups(model, 1000)), "ha|");
}

TEST(GroupPlan, MatricesOfAUnitLieOneBehindAnother) {
  const auto matrix = [](const std::string& name) {
    return nn::NamedParameter{name, at::ones({2, 2}).set_requires_grad(true)};
  };
  ModelUnits model =
      units_of({{},
                {parameter("n", 2), matrix("Q"), parameter("q", 2), matrix("K"), parameter("k", 2)},
                {matrix("H")}});
  EXPECT_EQ(text(plan_groups(model, 1000)), "HQKnqk|");
  for (const nn::NamedParameter& one : model.units[1].parameters)
    if (one.name != "n") one.tensor.set_requires_grad(false);
  EXPECT_EQ(text(frozen_parameters(model)), "|QKqk||");
}

TEST(GroupPlan, DtypesNeverShareAGroup) {
  // pitfalls.md row 12
  const ModelUnits model =
      units_of({{parameter("e", 4)}, {parameter("a", 4, at::kBFloat16), parameter("b", 4)}, {}});
  EXPECT_EQ(text(plan_groups(model, 1000)), "be|a|");
}

TEST(GroupPlan, NothingTrainableGivesNoGroups) {
  ModelUnits model = units_of({{parameter("e", 10)}, {}, {}});
  model.units[0].parameters[0].tensor.set_requires_grad(false);
  EXPECT_TRUE(plan_groups(model, 1000).empty());
  EXPECT_EQ(text(frozen_parameters(model)), "e|||");
  EXPECT_THROW(plan_groups(units_of({{parameter("e", 1)}}), 0), ConfigError);
}

}  // namespace
}  // namespace apus::parallel
