#include "apus/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/checkpoint/optimizer_shard.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_batches.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointContents contents() {
    return {.write_weights = [](const fs::path& folder, const std::vector<nn::NamedParameter>& masters) {
              write_file_atomic(folder / "weights.txt", std::to_string(masters.size()));
            },
            .trainer_state = [] { return nlohmann::ordered_json{{"step", 7}}; }};
  }

  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
  std::unique_ptr<models::Qwen2> model_ = testing::tiny_qwen2();
  parallel::ShardedModel engine_{*model_, *dp_, {.policy = parallel::Zero2()}};
  testing::ScratchFolder out_;
};

TEST_F(CheckpointTest, ComesBackWithStatesAndUpdates) {
  auto states = engine_.optimizer_states();
  states[0].exp_avg.fill_(0.25);
  const at::Tensor master = states[0].master.clone();
  engine_.load_finished(5);
  const fs::path path = save_checkpoint(out_.path(), 7, engine_, contents());
  EXPECT_EQ(path.filename(), "checkpoint-7");
  EXPECT_FALSE(fs::exists(path.string() + ".partial"));
  states[0].exp_avg.zero_();
  states[0].master.zero_();
  EXPECT_EQ(nlohmann::json::parse(load_checkpoint(path, engine_)).at("step"), 7);
  EXPECT_EQ(engine_.updates(), 5);
  EXPECT_TRUE(engine_.optimizer_states()[0].master.equal(master));
  EXPECT_EQ(engine_.optimizer_states()[0].exp_avg.min().item<double>(), 0.25);
}

TEST_F(CheckpointTest, AFailedSaveLeavesNothingAndKeepsTheOldOne) {
  save_checkpoint(out_.path(), 7, engine_, contents());
  auto failing = contents();
  failing.write_weights = [](const fs::path&, const auto&) { throw ConfigError("disk on fire"); };
  EXPECT_THROW(save_checkpoint(out_.path(), 7, engine_, failing), ConfigError);
  EXPECT_FALSE(fs::exists(out_ / "checkpoint-7.partial"));
  EXPECT_EQ(whole_checkpoints(out_.path()).size(), 1u);
}

TEST_F(CheckpointTest, OnlyWholeOnesAreFoundInOrder) {
  save_checkpoint(out_.path(), 10, engine_, contents());
  save_checkpoint(out_.path(), 9, engine_, contents());
  fs::create_directories(out_ / "checkpoint-11.partial");
  fs::create_directories(out_ / "checkpoint-12");
  save_checkpoint(out_.path(), 8, engine_, contents());
  fs::remove(out_.path() / "checkpoint-8" / "weights.txt");
  const auto found = whole_checkpoints(out_.path());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].step, 9);
  EXPECT_EQ(found[1].step, 10);
}

TEST_F(CheckpointTest, AnotherModelsShardIsRefused) {
  const fs::path path = save_checkpoint(out_.path(), 1, engine_, contents());
  models::Qwen2 other({.hidden_size = 16, .num_attention_heads = 2, .tie_word_embeddings = true}, at::kFloat);
  models::init_random(other);
  nn::make_trainable(other);
  parallel::ShardedModel engine(other, *dp_, {.policy = parallel::Zero2()});
  try {
    load_checkpoint(path, engine);
    FAIL() << "did not throw";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("other trainable parameters"), std::string::npos) << error.what();
  }
}

TEST_F(CheckpointTest, ShardNamesSortByRank) {
  EXPECT_EQ(optimizer_shard_name(2, 4), "optimizer/rank-00002-of-00004.safetensors");
}

}  // namespace
}  // namespace apus::checkpoint
