#include "cli/training_run.h"

#include "apus/base/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/cli/support/program_call.h"

namespace apus::cli {
namespace {

TEST(TrainingRun, FlagsAreCheckedBeforeRanksAreStarted) {
  const Environment several(Environment::Map{{"NPROC_PER_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", ""}});
  const Outcome outcome = call({"dpo", "--lora_rnak", "8"}, several);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.error, "error: unknown flag --lora_rnak (did you mean 'lora_rank'?)\n");
}

TEST(TrainingRun, OnlyRankZeroRepeatsAnErrorThatAllHave) {
  const Environment first(Environment::Map{{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  const Environment second(Environment::Map{{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(call({"dpo", "--seed", "x"}, first).error.find("error: --seed"), 0u);
  const Outcome quiet = call({"dpo", "--seed", "x"}, second);
  EXPECT_EQ(quiet.error, "");
  EXPECT_EQ(quiet.code, 2);
}

TEST(TrainingRun, TheCheckBeforeStartingKnowsTheWorld) {
  const Environment no_gpu(Environment::Map{{"CUDA_VISIBLE_DEVICES", ""}});
  Call call{
      .arguments = {"dpo", "--model", "m", "--dataset", "d", "--device_map", "auto", "--ddp_backend", "gloo"},
      .environment = no_gpu};
  EXPECT_THROW(check_training(call, 1), ConfigError);
  EXPECT_NO_THROW(check_training(call, 4));
  call.arguments.push_back("--beta=-1");
  EXPECT_THROW(check_training(call, 4), ConfigError);
}

TEST(TrainingRun, TrainRefusesDataOfOtherTasks) {
  const TemporaryFolder folder;
  const std::string data = folder.put("sft.jsonl", "{\"messages\": []}\n").string();
  const Outcome outcome = call({"train", "--model", "m", "--dataset", data});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("other tasks than DPO are not supported yet"), std::string::npos)
      << outcome.error;
  EXPECT_NE(call({"train", "--model", "m"}).error.find("--dataset is missing"), std::string::npos);
}

}  // namespace
}  // namespace apus::cli
