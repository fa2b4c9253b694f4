#include "apus/train/job_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <type_traits>

#include "apus/base/file.h"

namespace apus::train {
namespace {

TEST(JobFields, EachNameIsVisitedOnce) {
  const JobOptions options;
  std::set<std::string> names;
  visit_fields(options,
               [&](const char* name, const auto&) { EXPECT_TRUE(names.insert(name).second) << name; });
  EXPECT_GT(names.size(), 100u);
  EXPECT_TRUE(names.contains("packing_length"));
}

TEST(JobFields, EveryFieldOfTheStructIsReached) {
  // The struct's text is the witness: whoever adds a field and forgets the list fails here.
  const std::string text = read_file(APUS_SOURCE_DIR "/include/apus/train/job_options.h");
  const std::string body = text.substr(text.find("struct APUS_API JobOptions"));
  const std::regex field(R"(\n  (?:std::[\w:<>]+|int64_t|double|bool) (\w+)(?: = [^;]*)?;)");
  std::set<std::string> declared;
  for (std::sregex_iterator found(body.begin(), body.end(), field), end; found != end; ++found) {
    declared.insert((*found)[1] == "chat_template" ? "template" : (*found)[1].str());
  }
  EXPECT_EQ(declared.erase("task") + declared.erase("given"), 2u);
  std::set<std::string> visited;
  const JobOptions options;
  visit_fields(options, [&](const char* name, const auto&) { visited.insert(name); });
  EXPECT_EQ(declared, visited);
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
  const std::vector<std::string> start = {"task", "rlhf_type", "train_type", "model", "torch_dtype"};
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.begin() + 5), start);
  EXPECT_EQ(json.at("packing_length"), 7);
  EXPECT_TRUE(json.at("max_length").is_null());
}

}  // namespace
}  // namespace apus::train
