#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/cli/training_command.h"
#include "cli/choose_device.h"
#include "tests/support/scratch_folder.h"

// tests/data/cli/flag_effects.json has, for every flag of the training commands, rows that say what it does:
// `flag` with `words` (beside the flags in `with`, in `task`) makes args.json say `value` under `key`, and
// changes no other key but those of `also`; or the command is refused with a message that holds `refused`.
namespace apus::cli {
namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::ordered_json;

Words words_of(const nlohmann::json& row, const char* key) {
  return row.contains(key) ? row.at(key).get<Words>() : Words();
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The flags without which there is no job, where the row does not give them.
Words base_flags(const nlohmann::json& row) {
  Words words;
  for (const char* name : {"model", "dataset"}) {
    if (row.at("flag") != name) words = joined(words, {std::string("--") + name, "somewhere"});
  }
  return joined(words, words_of(row, "with"));
}

/// What becomes of a command line: args.json, and what else a command decides.
Json outcome_of(const Words& words, const nlohmann::json& row) {
  const int world = row.value("world", 4);
  const TrainingCommand command = parse_training_command(words, row.value("task", "dpo"));
  check_world(command, world);
  Json json = train::to_json(train::resolve_job(command.job, world));
  json["notes"] = command.notes;
  json["device"] =
      choose_device(command, {.survey = {.state = GpuState::kNone, .reason = "no GPU here"}}).sentence;
  return json;
}

class FlagEffects : public testing::Test {
 protected:
  static nlohmann::json rows() { return load_json_file(APUS_SOURCE_DIR "/tests/data/cli/flag_effects.json"); }

  /// The row's flag with its words; those of --config become a file.
  Words flag_of(const nlohmann::json& row) {
    const std::string flag = row.at("flag");
    Words words = words_of(row, "words");
    if (flag == "config") words = {folder_.put("config.json", words.front()).string()};
    return joined({"--" + flag}, words);
  }

  /// The message of a refused row; "accepted" if it is not.
  std::string refusal(const nlohmann::json& row) {
    try {
      outcome_of(joined(base_flags(row), flag_of(row)), row);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  void expect_effect(const nlohmann::json& row) {
    const std::string key = row.at("key");
    const Json after = outcome_of(joined(base_flags(row), flag_of(row)), row);
    EXPECT_EQ(nlohmann::json(after.at(key)), row.at("value")) << row;
    Words also = words_of(row, "also");
    also.push_back(key);
    if (row.at("flag") == "model" || row.at("flag") == "dataset") return;  // without it there is no job
    const Json before = outcome_of(base_flags(row), row);
    if (row.value("same", false)) {
      EXPECT_EQ(before, after) << row;
      return;
    }
    EXPECT_NE(before.at(key), after.at(key)) << row << " does nothing";
    for (const auto& [name, value] : after.items()) {
      if (std::ranges::find(also, name) == also.end())
        EXPECT_EQ(value, before.at(name)) << row << " changed " << name;
    }
  }

  ScratchFolder folder_;
};

TEST_F(FlagEffects, EveryFlagDoesWhatItSaysOrIsRefused) {
  for (const nlohmann::json& row : rows()) {
    SCOPED_TRACE(row.dump());
    if (row.contains("refused")) {
      const std::string message = refusal(row);
      EXPECT_NE(message.find(row.at("refused").get<std::string>()), message.npos) << message;
    } else {
      EXPECT_NO_THROW(expect_effect(row));
    }
  }
}

TEST_F(FlagEffects, EveryFlagOfTheTableHasARow) {
  std::set<std::string> tested;
  const FlagTable table = training_flags();
  for (const nlohmann::json& row : rows()) {
    const std::string name = row.at("flag");
    const Flag* flag = table.find(name);
    ASSERT_NE(flag, nullptr) << name;
    tested.insert(flag->name);
  }
  for (const Flag& flag : table.flags()) {
    if (flag.status != FlagStatus::kNoEffect) EXPECT_TRUE(tested.contains(flag.name)) << "--" << flag.name;
  }
}

TEST_F(FlagEffects, AFlagForPythonChangesNothingAndIsSaid) {
  const nlohmann::json row = {{"flag", ""}};
  Json before = outcome_of(base_flags(row), row);
  const FlagTable table = training_flags();
  for (const Flag& flag : table.flags()) {
    if (flag.status != FlagStatus::kNoEffect) continue;
    Json after = outcome_of(joined(base_flags(row), {"--" + flag.name, "true"}), row);
    EXPECT_EQ(after.at("notes"),
              Json::array({"Without effect here, meant for Python programs: --" + flag.name}));
    after["notes"] = before.at("notes");
    EXPECT_EQ(after, before) << flag.name;
  }
}

TEST_F(FlagEffects, EveryDefaultOfTheTableIsTaken) {
  // What the help shows as a default can be typed, wherever it is a value or a word, and changes nothing.
  const FlagTable table = training_flags();
  const nlohmann::json row = {{"flag", ""}};
  const Json before = outcome_of(base_flags(row), row);
  for (const Flag& flag : table.flags()) {
    const bool is_sentence = flag.default_text.find(' ') != std::string::npos || flag.default_text.empty();
    if (flag.status == FlagStatus::kNoEffect || is_sentence || flag.default_text == "-") continue;
    if (flag.default_text.find('<') != std::string::npos) continue;  // output/<model>
    EXPECT_NO_THROW({
      const Json after = outcome_of(joined(base_flags(row), {"--" + flag.name, flag.default_text}), row);
      EXPECT_EQ(after, before) << flag.name;
    }) << flag.name;
  }
}

}  // namespace
}  // namespace apus::cli
