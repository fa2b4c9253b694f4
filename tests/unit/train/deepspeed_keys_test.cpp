// tests/data/cli/deepspeed_keys.json has a row for every key: `key` with `value`, beside the keys in `with`,
// makes the resolved configuration (of 4 ranks, 100 steps) say `value` (or `becomes`) at the same place (or
// `at`), where it said something else before (unless `same`; before: the keys in `without`, else in `with`);
// or it is `named` as without effect and changes nothing; or it is `refused`, with these words or those of
// its row in the list.
#include "train/deepspeed_keys.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "apus/base/file.h"
#include "apus/base/json.h"
#include "tests/unit/train/support/strategy_case.h"
#include "train/fsdp_config.h"

namespace apus::train {
namespace {

using nlohmann::json;

json rows() {
  return load_json_file(APUS_SOURCE_DIR "/tests/data/cli/deepspeed_keys.json");
}

/// The value under a path, in an object of its own.
json nested(const std::string& path, const json& value) {
  const size_t dot = path.rfind('.');
  if (dot == path.npos) return {{path, value}};
  return nested(path.substr(0, dot), {{path.substr(dot + 1), value}});
}

struct Outcome {
  json resolved;
  std::string note;
};

Outcome outcome_of(const json& config) {
  JobOptions options = job_of(config.dump());
  settle_strategy(options, 4);
  return {.resolved = json::parse(strategy_json(options, {.world = 4, .local_world = 4}, 100).dump()),
          .note = strategy_note(options)};
}

void expect_effect(const json& row, const json& before, const json& after) {
  const std::string at = row.value("at", row.at("key").get<std::string>());
  const json wanted = row.contains("becomes") ? row.at("becomes") : row.at("value");
  const Outcome plain = outcome_of(before), changed = outcome_of(after);
  const json* now = value_at(changed.resolved, at);
  ASSERT_NE(now, nullptr) << changed.resolved;
  EXPECT_EQ(*now, wanted);
  if (row.value("same", false)) return;
  const json* then = value_at(plain.resolved, at);
  EXPECT_TRUE(then == nullptr || *then != wanted) << "it does nothing";
}

void expect_refused(const json& row, const json& after) {
  const std::string key = row.at("key");
  const std::string message = refusal([&] { outcome_of(after); });
  EXPECT_NE(message.find(key), message.npos) << message;
  std::string words;
  if (row.at("refused").is_string()) {
    words = row.at("refused");
  } else {
    for (const ConfigKey& known : deepspeed_keys()) {
      if (known.path == key) words = known.note;
    }
  }
  EXPECT_FALSE(words.empty());
  EXPECT_NE(message.find(words), message.npos) << message;
}

TEST(DeepspeedKeys, EachDoesWhatItSaysOrIsRefusedOrNamed) {
  for (const json& row : rows()) {
    SCOPED_TRACE(row.dump());
    const std::string key = row.at("key");
    const json beside = row.value("with", json::object());
    json after = beside;
    after.merge_patch(nested(key, row.at("value")));
    if (row.contains("refused")) {
      expect_refused(row, after);
    } else if (row.contains("named")) {
      const Outcome changed = outcome_of(after);
      EXPECT_EQ(changed.note, "Without effect in --deepspeed: " + key);
      EXPECT_EQ(changed.resolved, outcome_of(beside).resolved);
    } else {
      EXPECT_NO_THROW(expect_effect(row, row.value("without", beside), after));
    }
  }
}

TEST(DeepspeedKeys, EveryKeyOfTheListHasARow) {
  std::set<std::string> tested, known;
  for (const json& row : rows()) EXPECT_TRUE(tested.insert(row.at("key")).second) << row;
  for (const ConfigKey& key : deepspeed_keys()) {
    EXPECT_TRUE(known.insert(std::string(key.path)).second) << key.path << " stands twice";
  }
  EXPECT_EQ(tested, known);
}

TEST(DeepspeedKeys, WhatHappensAnywayIsTakenAndNotNamed) {
  for (const ConfigKey& key : deepspeed_keys()) {
    if (key.harmless.empty()) continue;
    const std::string first(key.harmless.substr(0, key.harmless.find('|')));
    json config = nested(std::string(key.path), json::parse(first));
    if (key.path.starts_with("optimizer.")) config["optimizer"]["type"] = "AdamW";
    EXPECT_NO_THROW(EXPECT_EQ(outcome_of(config).note, "")) << key.path;
  }
}

TEST(DeepspeedKeys, WhatIsRefusedOrIdleSaysWhy) {
  for (const ConfigKey& key : deepspeed_keys()) {
    EXPECT_EQ(key.note.empty(), key.effect == KeyEffect::kActs) << key.path;
  }
}

TEST(DeepspeedKeys, TheGuideHasEachOfThem) {
  const std::string page = read_file(APUS_SOURCE_DIR "/docs/guide/deepspeed_fsdp.md");
  const auto expect_row = [&](const ConfigKey& key) {
    const size_t at = page.find("| `" + std::string(key.path) + "`");
    ASSERT_NE(at, page.npos) << key.path;
    const std::string row = page.substr(at, page.find('\n', at) - at);
    EXPECT_NE(row.find(key.note), row.npos) << row;
    EXPECT_EQ(row.find("(auto)") != row.npos,
              key.effect == KeyEffect::kActs && key.takes_auto == KeyAuto::kYes)
        << row;
  };
  for (const ConfigKey& key : deepspeed_keys()) expect_row(key);
  for (const ConfigKey& key : fsdp_keys()) expect_row(key);
}

}  // namespace
}  // namespace apus::train
