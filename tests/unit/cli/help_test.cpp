#include <gtest/gtest.h>

#include "apus/cli/flag_table.h"

namespace apus::cli {
namespace {

TEST(HelpText, ListsEveryFlagWithItsDefaultInOneColumn) {
  const FlagTable table = training_flags();
  const std::string text = help_text("dpo", "Trains.", table);
  EXPECT_EQ(text.find("Usage: apus dpo [flags]\nTrains.\n"), 0u);
  for (const Flag& flag : table.flags()) EXPECT_NE(text.find("--" + flag.name), text.npos) << flag.name;
  const std::string line =
      "\n  --lora_rank" + std::string(21, ' ') + "8" + std::string(19, ' ') + "rank of a new adapter\n";
  EXPECT_NE(text.find(line), text.npos);
  EXPECT_NE(text.find("--max_grad_norm, --gradient_clipping"), text.npos);
  EXPECT_NE(text.find("tensorboard [not supported yet]"), text.npos);
}

TEST(HelpText, HasTheHeadingsThatUsersLookFor) {
  const std::string text = help_text("dpo", "", training_flags());
  for (const char* heading : {"deepspeed", "fsdp", "megatron", "preferences (DPO)"}) {
    EXPECT_NE(text.find(std::string("\n") + heading + ":\n"), text.npos) << heading;
  }
}

}  // namespace
}  // namespace apus::cli
