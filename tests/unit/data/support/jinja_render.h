#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "apus/base/clock.h"
#include "apus/data/jinja.h"

namespace apus::data {

/// A template, what it must give, and the context it gets (JSON).
struct JinjaCase {
  const char* source;
  const char* expected;
  const char* context = "{}";
};

/// Contexts that many cases share.
inline constexpr const char* kMessages =
    R"({"ms": [{"role": "user", "content": "a", "n": 3}, {"role": "assistant", "content": "b", "n": 1},)"
    R"( {"role": "user", "content": "c", "n": 2}]})";
inline constexpr const char* kDict = R"({"d": {"b": 2, "a": 1, "C": 3}})";

/// 2026-11-30 07:41:20 on this machine's calendar.
inline Clock::WallTime jinja_test_time() {
  std::tm local{};
  local.tm_year = 126;
  local.tm_mon = 10;
  local.tm_mday = 30;
  local.tm_hour = 7;
  local.tm_min = 41;
  local.tm_sec = 20;
  local.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&local));
}

/// The rendered text; for an error "!kind", and for raise_exception "!raise_exception: message".
inline std::string rendered(const std::string& source, const std::string& context = "{}",
                            const RenderLimits& limits = {}) {
  const ManualClock clock(jinja_test_time());
  try {
    const JinjaTemplate jinja = JinjaTemplate::parse(source, "test");
    return jinja.render(nlohmann::ordered_json::parse(context), {.clock = &clock, .limits = limits}).text;
  } catch (const JinjaError& error) {
    const std::string kind = "!" + std::string(jinja_error_kind_name(error.kind()));
    return error.kind() == JinjaErrorKind::kRaiseException ? kind + ": " + error.what() : kind;
  }
}

inline void expect_rendered(std::initializer_list<JinjaCase> cases) {
  for (const JinjaCase& c : cases) EXPECT_EQ(rendered(c.source, c.context), c.expected) << c.source;
}

}  // namespace apus::data
