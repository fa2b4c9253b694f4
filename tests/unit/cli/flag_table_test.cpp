#include "apus/cli/flag_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "cli/flag_groups.h"

namespace apus::cli {
namespace {

/// The page that users are promised: names, aliases and defaults of every training flag.
nlohmann::json promised_flags() {
  return load_json_file(APUS_SOURCE_DIR "/tests/data/cli/flags.json");
}

TEST(FlagTable, HoldsEveryPromisedFlagWithItsDefault) {
  const FlagTable table = training_flags();
  const nlohmann::json promised = promised_flags();
  EXPECT_GT(promised.size(), 100u);
  for (const auto& row : promised) {
    const std::string name = row.at("name");
    const Flag* flag = table.find(name);
    ASSERT_NE(flag, nullptr) << "--" << name;
    EXPECT_EQ(flag->name, name);
    EXPECT_EQ(flag->default_text, row.at("default").get<std::string>()) << "--" << name;
    for (const std::string alias : row.at("aliases")) EXPECT_EQ(table.find(alias), flag) << "--" << alias;
  }
}

TEST(FlagTable, HoldsNothingThatIsNotPromised) {
  std::set<std::string> promised;
  const nlohmann::json page = promised_flags();
  for (const auto& row : page) promised.insert(row.at("name").get<std::string>());
  const FlagTable table = training_flags();
  for (const Flag& flag : table.flags()) {
    if (flag.status == FlagStatus::kNoEffect) continue;
    EXPECT_TRUE(promised.contains(flag.name)) << "--" << flag.name;
  }
}

TEST(FlagTable, DashesCountAsUnderscores) {
  const FlagTable table = training_flags();
  EXPECT_EQ(table.find("learning-rate"), table.find("learning_rate"));
  EXPECT_EQ(table.find("learning.rate"), nullptr);
}

TEST(FlagTable, ANameThatStandsTwiceIsABug) {
  using enum FlagKind;
  EXPECT_THROW(FlagTable({acts("a", kText, "", ""), also({"a"}, acts("b", kText, "", ""))}), Error);
}

TEST(FlagTable, EveryFlagHasAHelpLineAndAGroup) {
  for (const FlagTable& table : {training_flags(), launch_flags(), infer_flags()}) {
    for (const Flag& flag : table.flags()) {
      EXPECT_FALSE(flag.group.empty()) << flag.name;
      if (flag.status != FlagStatus::kNoEffect) EXPECT_FALSE(flag.help.empty()) << flag.name;
    }
  }
}

TEST(FlagTable, ATasksTableHasWhatTheTaskUses) {
  const FlagTable dpo = training_flags("dpo");
  const FlagTable sft = training_flags("sft");
  const FlagTable pt = training_flags("pt");
  for (const char* name : {"beta", "loss_type", "ref_adapters", "ref_model", "rlhf_type", "dpo_reduction"}) {
    EXPECT_NE(dpo.find(name), nullptr) << name;
    EXPECT_EQ(sft.find(name), nullptr) << name;
    EXPECT_EQ(pt.find(name), nullptr) << name;
  }
  EXPECT_EQ(dpo.find("loss_scale"), nullptr);
  EXPECT_NE(sft.find("loss_scale"), nullptr);
  for (const FlagTable* table : {&dpo, &sft, &pt}) {
    for (const char* name : {"model", "lora_rank", "deepspeed", "freeze_parameters", "use_fast_tokenizer"})
      EXPECT_NE(table->find(name), nullptr) << name;
    EXPECT_EQ(table->find("max_new_tokens"), nullptr);
  }
  EXPECT_EQ(training_flags().flags().size(), training_flags("").flags().size());
}

}  // namespace
}  // namespace apus::cli
