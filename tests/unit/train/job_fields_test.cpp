#include "apus/train/job_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

namespace apus::train {
namespace {

TEST(JobFields, EachNameIsVisitedOnce) {
  const JobOptions options;
  std::set<std::string> names;
  visit_fields(options,
               [&](const char* name, const auto&) { EXPECT_TRUE(names.insert(name).second) << name; });
  EXPECT_GT(names.size(), 50u);
  EXPECT_TRUE(names.contains("packing_length"));
}

TEST(JobFields, EveryFieldIsReached) {
  // Whoever adds a field and forgets the list changes the struct's size, but not this sum.
  const JobOptions options;
  size_t bytes = 0;
  visit_fields(options, [&](const char*, const auto& field) { bytes += sizeof(field); });
  EXPECT_LE(bytes, sizeof(options));
  EXPECT_LT(sizeof(options) - bytes, 64u) << "more than what alignment takes";
}

TEST(JobFields, TheFieldsCanBeSet) {
  JobOptions options;
  visit_fields(options, [](const char*, auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) field = !field;
  });
  EXPECT_TRUE(options.packing);
  EXPECT_FALSE(options.add_version);
}

TEST(JobFields, TheRecordFollowsTheOrderOfTheStruct) {
  JobOptions options;
  options.packing_length = 7;
  std::vector<std::string> names;
  const nlohmann::ordered_json json = to_json(options);
  for (const auto& [name, value] : json.items()) names.push_back(name);
  const std::vector<std::string> start = {"rlhf_type", "train_type", "model", "torch_dtype", "adapters"};
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.begin() + 5), start);
  EXPECT_EQ(json.at("packing_length"), 7);
  EXPECT_TRUE(json.at("max_length").is_null());
}

}  // namespace
}  // namespace apus::train
