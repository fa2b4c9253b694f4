#include "cli/training_run.h"

#include "apus/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/cli/support/program_call.h"

namespace apus::cli {
namespace {

TEST(TrainingRun, FlagsAreCheckedBeforeRanksAreStarted) {
  const Environment several(Environment::Map{{"NPROC_PER_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", ""}});
  const Outcome outcome = call({"dpo", "--lora_rnak", "8"}, several);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.error, "error: unknown flag --lora_rnak (did you mean '--lora_rank'?)\n");
}

TEST(TrainingRun, OnlyRankZeroRepeatsAnErrorThatIsCollected) {
  const ScratchFolder folder;
  for (const Environment::Map& collector :
       {Environment::Map{{"APUS_ERROR_DIR", folder.path().string()}},
        Environment::Map{{"TORCHELASTIC_ERROR_FILE", (folder / "error.json").string()}}}) {
    Environment ranks(collector);
    ranks.set("WORLD_SIZE", "2");
    ranks.set("RANK", "0");
    EXPECT_EQ(call({"dpo", "--seed", "x"}, ranks).error.find("error: --seed"), 0u);
    ranks.set("RANK", "1");
    const Outcome quiet = call({"dpo", "--seed", "x"}, ranks);
    EXPECT_EQ(quiet.error, "");
    EXPECT_EQ(quiet.code, 2);
  }
}

TEST(TrainingRun, ARankWhoseErrorNobodyCollectsSaysIt) {
  Environment second(Environment::Map{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"OMP_NUM_THREADS", "0"}});
  const Outcome outcome = call({"dpo", "--model", "m", "--dataset", "d", "--ddp_backend", "gloo"}, second);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.error.find("[rank 1] error: OMP_NUM_THREADS"), 0u) << outcome.error;
}

TEST(TrainingRun, AHubIdThatNoCacheHasIsRefusedBeforeRanksAreStarted) {
  const ScratchFolder home;
  const Environment several(Environment::Map{{"NPROC_PER_NODE", "4"}, {"HOME", home.path().string()}});
  const Outcome outcome =
      call({"dpo", "--model", "Qwen/Qwen2.5-7B", "--dataset", "d", "--ddp_backend", "gloo"}, several);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.error.find("error: --model Qwen/Qwen2.5-7B is neither a folder nor"), 0u)
      << outcome.error;
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
  const ScratchFolder folder;
  const std::string data = folder.put("sft.jsonl", "{\"messages\": []}\n").string();
  const Outcome outcome = call({"train", "--model", "m", "--dataset", data});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("other tasks than DPO are not supported yet"), std::string::npos)
      << outcome.error;
  EXPECT_NE(call({"train", "--model", "m"}).error.find("--dataset is missing"), std::string::npos);
}

}  // namespace
}  // namespace apus::cli
