#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apus/base/json.h"
#include "apus/cli/flag_table.h"

namespace apus::cli {
namespace {

TEST(HelpText, ListsEveryFlagWithItsDefaultInOneColumn) {
  const FlagTable table = training_flags();
  const std::string text = help_text("dpo", "Trains.", table);
  EXPECT_EQ(text.find("Usage: apus dpo [flags]\nTrains.\n"), 0u);
  for (const Flag& flag : table.flags()) EXPECT_NE(text.find("--" + flag.name), text.npos) << flag.name;
  const std::string line =
      "\n  --lora_rank" + std::string(21, ' ') + "8" + std::string(23, ' ') + "rank of a new adapter\n";
  EXPECT_NE(text.find(line), text.npos);
  EXPECT_NE(text.find("--adam_beta1, --adam_beta_1 "), text.npos);
  EXPECT_NE(text.find("0: never\n    --gradient_clipping\n"), text.npos) << "an alias that has no room";
  EXPECT_NE(text.find("weight-decomposed adapters [not supported yet]"), text.npos);
}

TEST(HelpText, HasTheHeadingsThatUsersLookFor) {
  const std::string text = help_text("dpo", "", training_flags());
  for (const char* heading : {"deepspeed", "fsdp", "megatron", "preferences (DPO)"}) {
    EXPECT_NE(text.find(std::string("\n") + heading + ":\n"), text.npos) << heading;
  }
}

TEST(HelpText, ACommandListsWhatItTakesAlone) {
  const std::string sft = help_text("sft", "", training_flags("sft"));
  EXPECT_EQ(sft.find("preferences (DPO)"), sft.npos);
  EXPECT_EQ(sft.find("--beta"), sft.npos);
  EXPECT_EQ(sft.find("--max_new_tokens"), sft.npos);
  EXPECT_NE(sft.find("--loss_scale"), sft.npos);
  EXPECT_EQ(help_text("env", "Looks.", FlagTable({})), "Usage: apus env\nLooks.\n\nIt takes no flags.");
}

TEST(HelpText, PrintsThePromisedDefaults) {
  const nlohmann::json promised = load_json_file(APUS_SOURCE_DIR "/tests/data/cli/flags.json");
  const std::string text = help_text("train", "", training_flags());
  for (const auto& row : promised) {
    const std::string name = "\n  --" + row.at("name").get<std::string>();
    const size_t begin = std::min({text.find(name + " "), text.find(name + ",")});
    ASSERT_NE(begin, text.npos) << name;
    const std::string line = text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
    EXPECT_NE(line.find("  " + row.at("default").get<std::string>() + "  "), line.npos) << line;
  }
}

}  // namespace
}  // namespace apus::cli
