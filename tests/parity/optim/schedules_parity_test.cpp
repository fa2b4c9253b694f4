#include "tests/support/case_folder.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/json.h"
#include "apus/optim/schedule.h"

namespace apus::optim {
namespace {

using nlohmann::json;

std::vector<json> schedule_files() {
  std::vector<json> documents;
  const auto is_json = [](const std::filesystem::path& path) { return path.extension() == ".json"; };
  for (const auto& path : cases::find_case_files("schedules", is_json)) {
    json document = load_json_file(path);
    if (document.contains("cases")) documents.push_back(std::move(document));
  }
  return documents;
}

void expect_schedule(const json& item) {
  const LrSchedule schedule({.type = item.at("name").get<std::string>(),
                             .learning_rate = item.at("learning_rate").get<double>(),
                             .total_steps = item.at("num_training_steps").get<int64_t>(),
                             .warmup_steps = item.at("num_warmup_steps").get<int64_t>(),
                             .kwargs = item.at("kwargs").dump()});
  ASSERT_FALSE(item.at("lr").empty());
  int64_t step = 0;
  for (const json& expected : item.at("lr")) {
    const double lr = expected.get<double>();
    // At the foot of a cosine 1 + cos cancels to a few ulp of the peak: relative to the peak there.
    EXPECT_NEAR(schedule.lr(step), lr, 1e-12 * std::abs(lr) + 1e-16 * schedule.options().learning_rate)
        << item.at("name") << " " << item.at("kwargs") << " step " << step;
    ++step;
  }
}

TEST(SchedulesParity, EveryRateOfEveryStepEqualsTransformers) {
  if (!std::filesystem::is_directory(cases::cases_root() / "schedules"))
    GTEST_SKIP() << "no schedules in this root";
  const std::vector<json> documents = schedule_files();
  ASSERT_FALSE(documents.empty());
  for (const json& document : documents)
    for (const json& item : document.at("cases")) expect_schedule(item);
}

TEST(SchedulesParity, EveryWarmUpLengthEqualsTransformers) {
  for (const json& document : schedule_files())
    for (const json& item : document.at("warmup_steps"))
      EXPECT_EQ(resolve_warmup_steps(item.at("num_training_steps").get<int64_t>(),
                                     {.warmup_steps = item.at("warmup_steps").get<double>()}),
                item.at("resolved").get<int64_t>())
          << item;
}

}  // namespace
}  // namespace apus::optim
