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
  const WorldSize four{.world = 4, .local_world = 4};
  EXPECT_THROW(check_training(call, {}), ConfigError);
  EXPECT_NO_THROW(check_training(call, four));
  call.arguments.push_back("--beta=-1");
  EXPECT_THROW(check_training(call, four), ConfigError);
}

TEST(TrainingRun, TrainTakesTheTaskFromTheDatasColumns) {
  const ScratchFolder folder;
  const std::string chats = folder.put("sft.jsonl", "{\"messages\": []}\n").string();
  const std::string texts = folder.put("pt.jsonl", "{\"text\": \"a\"}\n").string();
  const std::string pairs =
      folder.put("dpo.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n").string();
  // A flag that the task has no use for shows which one was found.
  const auto refusal = [](const std::string& data, const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"train", "--model", "m", "--ddp_backend", "gloo", "--dataset", data};
    words.insert(words.end(), flags.begin(), flags.end());
    return call(words, Environment(Environment::Map{{"NPROC_PER_NODE", "2"}})).error;
  };
  EXPECT_EQ(
      refusal(chats, {"--beta", "0.2"}),
      "error: --beta 0.2 is for apus dpo, and this trains sft, which has no use for it; leave it out\n");
  EXPECT_NE(refusal(texts, {"--loss_scale", "all"}).find("is for apus sft, and this trains pt"),
            std::string::npos);
  EXPECT_NE(refusal(pairs, {"--loss_scale", "all"}).find("is for apus sft, and this trains dpo"),
            std::string::npos);
  EXPECT_NE(call({"train", "--model", "m"}).error.find("--dataset is missing"), std::string::npos);
}

TEST(TrainingRun, CommandsThatTrainMayHaveRanks) {
  for (const char* name : {"dpo", "sft", "pt", "rlhf", "train"}) EXPECT_TRUE(trains(name)) << name;
  for (const char* name : {"data", "merge", "env", "plan", "infer", ""}) EXPECT_FALSE(trains(name)) << name;
}

}  // namespace
}  // namespace apus::cli
