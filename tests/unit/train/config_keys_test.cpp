#include "train/config_keys.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/train/support/strategy_case.h"

namespace apus::train {
namespace {

using nlohmann::json;
using enum KeyKind;

constexpr ConfigKey kKeys[] = {
    automatic("size", kInteger),         acting("zero.stage", kInteger),
    acting("zero.names", kTexts),        idle("zero.speed", kBoolean, "it is fast", "true"),
    idle("lines", kNumbers, "no"),       refused("zero.mode", kText, "\"plain\"|null", "take plain"),
    refused("tool", kSection, "", "no"),
};

std::string message(const char* text) {
  return refusal([&] { check_keys(json::parse(text), kKeys, "--flag F"); });
}

TEST(ConfigKeys, WhatIsKnownIsTaken) {
  EXPECT_EQ(message(R"({"size": "auto", "zero": {"stage": 2.0, "names": "x", "mode": "plain"}})"),
            "accepted");
  EXPECT_EQ(message(R"({"size": null, "zero": null, "tool": {}})"), "accepted");
}

TEST(ConfigKeys, KeysWithoutEffectAreNamed) {
  const json config =
      json::parse(R"({"zero": {"speed": false}, "lines": [1, 2], "tool": {"enabled": false, "more": 3}})");
  EXPECT_EQ(check_keys(config, kKeys, ""), (std::vector<std::string>{"lines", "tool", "zero.speed"}));
  EXPECT_TRUE(check_keys(json::parse(R"({"zero": {"speed": true}})"), kKeys, "").empty());
}

TEST(ConfigKeys, UnknownKeysNameTheNearest) {
  EXPECT_EQ(message(R"({"sise": 1})"), "--flag F: nobody knows the key sise (did you mean 'size'?)");
  EXPECT_EQ(message(R"({"zero": {"stge": 1}})"),
            "--flag F: nobody knows the key zero.stge (did you mean 'stage'?)");
  EXPECT_EQ(message(R"({"stage": 1})"), "--flag F: nobody knows the key stage (did you mean 'zero.stage'?)");
  EXPECT_EQ(message(R"({"zzzzzzzz": 1})"), "--flag F: nobody knows the key zzzzzzzz");
}

TEST(ConfigKeys, ValuesOfAnotherKindAreRefused) {
  EXPECT_EQ(message(R"({"size": "big"})"), "--flag F: size must be a whole number, got \"big\"");
  EXPECT_EQ(message(R"({"size": 1.5})"), "--flag F: size must be a whole number, got 1.5");
  EXPECT_EQ(message(R"({"zero": 3})"), "--flag F: zero must be an object, got 3");
  EXPECT_EQ(message(R"({"zero": {"speed": 1}})"), "--flag F: zero.speed must be true or false, got 1");
  EXPECT_EQ(message(R"({"zero": {"names": [1]}})"),
            "--flag F: zero.names must be a string or a list of strings, got [1]");
  EXPECT_EQ(message(R"({"lines": 1})"), "--flag F: lines must be a list of numbers, got 1");
}

TEST(ConfigKeys, WhatCannotBeHonouredSaysWhatToDo) {
  EXPECT_EQ(message(R"({"zero": {"mode": "odd"}})"),
            "--flag F: zero.mode \"odd\" is not supported: take plain");
  EXPECT_EQ(message(R"({"tool": {"enabled": true}})"), "--flag F: tool is not supported: no");
}

TEST(ConfigKeys, AnAutoThatNothingResolvesIsRefused) {
  EXPECT_EQ(message(R"({"zero": {"stage": "auto"}})"),
            "--flag F: zero.stage is \"auto\", and nothing else says what it should be: give a whole number");
}

TEST(ConfigKeys, ValuesAreFoundByPath) {
  const json config = json::parse(R"({"a": {"b": {"c": 1}, "d": null}})");
  EXPECT_EQ(*value_at(config, "a.b.c"), 1);
  EXPECT_EQ(value_at(config, "a.d"), nullptr);
  EXPECT_EQ(value_at(config, "a.b.c.d"), nullptr);
  EXPECT_EQ(value_at(config, "x"), nullptr);
}

TEST(ConfigKeys, ADottedNameIsNoPath) {
  EXPECT_EQ(
      message(R"({"zero.stage": 2})").find("--flag F: nobody knows the key \"zero.stage\": a section is"),
      0u);
}

}  // namespace
}  // namespace apus::train
