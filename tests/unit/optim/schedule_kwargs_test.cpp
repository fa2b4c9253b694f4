#include "optim/schedule_kwargs.h"

#include <gtest/gtest.h>

#include <string>

#include "apus/base/error.h"

namespace apus::optim::detail {
namespace {

TEST(ScheduleKwargs, ReadsNumbersAndWords) {
  ScheduleKwargs kwargs(R"({"power": 2, "rate": 0.5, "curve": "linear"})", "test");
  EXPECT_EQ(kwargs.number("power", 1), 2);
  EXPECT_EQ(kwargs.find_number("rate"), 0.5);
  EXPECT_EQ(kwargs.choice("curve", "cosine", {"cosine", "linear"}), "linear");
  EXPECT_NO_THROW(kwargs.check_all_used());
}

TEST(ScheduleKwargs, AbsentAndNullMeanTheDefault) {
  ScheduleKwargs empty("", "test"), null(R"({"power": null, "curve": null})", "test");
  EXPECT_EQ(empty.number("power", 3), 3);
  EXPECT_EQ(empty.find_number("rate"), std::nullopt);
  EXPECT_EQ(null.number("power", 3), 3);
  EXPECT_EQ(null.choice("curve", "cosine", {"cosine"}), "cosine");
  EXPECT_NO_THROW(null.check_all_used());
}

TEST(ScheduleKwargs, AKeywordThatNobodyReadIsAnError) {
  ScheduleKwargs kwargs(R"({"power": 2, "pwer": 2})", "polynomial");
  kwargs.number("power", 1);
  try {
    kwargs.check_all_used();
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("polynomial takes no 'pwer' (did you mean 'power'?); it takes power"),
              std::string::npos)
        << message;
  }
}

TEST(ScheduleKwargs, RefusesOtherKinds) {
  ScheduleKwargs kwargs(R"({"power": true, "curve": 3, "other": "x"})", "test");
  EXPECT_THROW(kwargs.number("power", 1), ConfigError);
  EXPECT_THROW(kwargs.choice("curve", "a", {"a"}), ConfigError);
  EXPECT_THROW(kwargs.choice("other", "a", {"a", "b"}), ConfigError);
  EXPECT_THROW(ScheduleKwargs("3", "test"), ConfigError);
  EXPECT_THROW(ScheduleKwargs("{", "test"), ConfigError);
}

}  // namespace
}  // namespace apus::optim::detail
