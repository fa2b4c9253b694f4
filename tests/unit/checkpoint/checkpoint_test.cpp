#include "apus/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/checkpoint/optimizer_shard.h"
#include "tests/support/rank_threads.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_batches.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointContents contents() {
    return {.write_weights =
                [](const fs::path& folder, const std::vector<nn::NamedParameter>& masters) {
                  write_file_atomic(folder / "weights.txt", std::to_string(masters.size()));
                },
            .trainer_state =
                [] {
                  return nlohmann::ordered_json{{"step", 7}};
                }};
  }

  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
  std::unique_ptr<models::Qwen2> model_ = testing::tiny_qwen2();
  parallel::ShardedModel engine_{*model_, *dp_, {.policy = parallel::Zero2()}};
  ScratchFolder out_;
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

TEST_F(CheckpointTest, HoldsAWholeModelWhereThatIsTrained) {
  auto whole = contents();
  whole.full_weights = FullWeightsOptions{.config_json = "{}"};
  const fs::path path = save_checkpoint(out_.path(), 7, engine_, whole);
  EXPECT_TRUE(fs::exists(path / "model.safetensors"));
  EXPECT_EQ(read_file(path / "weights.txt"), "0") << "no masters were gathered";
  EXPECT_FALSE(damage_of(path).has_value());
}

TEST_F(CheckpointTest, AnUpdateOnTheHostEndsOnAllRanksBeforeOneAsksForItsStates) {
  auto whole = contents();
  whole.full_weights = FullWeightsOptions{.config_json = "{}"};
  testing::run_ranks(2, [&](std::shared_ptr<comm::Communicator> dp) {
    const auto model = testing::tiny_qwen2();
    parallel::ShardPolicy policy = parallel::Zero1();
    policy.residency.optimizer = memory::Residency::kHost;
    parallel::ShardedModel engine(*model, *dp, {.policy = policy});
    engine.backward(at::zeros({}), parallel::MicroBatchPlace::kLast);
    engine.update({.lr = 1e-3});
    EXPECT_TRUE(fs::exists(save_checkpoint(out_.path(), 1, engine, whole) / "model.safetensors"));
  });
}

TEST_F(CheckpointTest, HashesThatWereJustCheckedAreNotCheckedAgain) {
  const fs::path path = save_checkpoint(out_.path(), 7, engine_, contents());
  const fs::path state = path / "trainer_state.json";
  std::string text = read_file(state);
  text[text.find('7')] = '8';
  write_file_atomic(state, text);
  EXPECT_THROW(load_checkpoint(path, engine_), CheckpointError);
  EXPECT_NO_THROW(load_checkpoint(path, engine_, FileCheck::kSizes));
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
    EXPECT_NE(std::string(error.what()).find("other trainable parameters"), std::string::npos)
        << error.what();
  }
}

/// Flips the last byte of a file: its size stays.
void damage(const fs::path& file) {
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomic(file, bytes);
}

TEST_F(CheckpointTest, DamageOfFindsAChangedByteInAnyFile) {
  const fs::path path = save_checkpoint(out_.path(), 7, engine_, contents());
  EXPECT_EQ(damage_of(path), std::nullopt);
  damage(path / "weights.txt");
  EXPECT_NE(damage_of(path).value_or("").find("weights.txt"), std::string::npos)
      << damage_of(path).value_or("");
  EXPECT_NE(damage_of(path).value_or("").find("SHA-256"), std::string::npos);
  EXPECT_EQ(whole_checkpoints(out_.path()).size(), 1u);  // sizes are right
  fs::remove(path / "checkpoint.json");
  EXPECT_NE(damage_of(path).value_or("").find("never finished"), std::string::npos);
  write_file_atomic(path / "checkpoint.json", "{broken");
  EXPECT_TRUE(damage_of(path).has_value());
}

TEST_F(CheckpointTest, LoadingADamagedOneNamesTheRemedy) {
  const fs::path path = save_checkpoint(out_.path(), 7, engine_, contents());
  for (const std::string& name : {optimizer_shard_name(0, 1), std::string("checkpoint.json")}) {
    damage(path / name);
    try {
      load_checkpoint(path, engine_);
      ADD_FAILURE() << "loaded with a damaged " << name;
    } catch (const CheckpointError& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.starts_with(path.string() + ": is damaged: ")) << text;
      EXPECT_NE(text.find(name), std::string::npos) << text;
      EXPECT_NE(text.find("remove this folder to resume from the checkpoint before it"), std::string::npos)
          << text;
    }
  }
}

TEST_F(CheckpointTest, AReplacementThatWasCutOffIsFoundAgain) {
  const fs::path path = save_checkpoint(out_.path(), 7, engine_, contents());
  fs::rename(path, path.string() + ".old");
  const auto found = whole_checkpoints(out_.path());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].path, path);
  EXPECT_NO_THROW(load_checkpoint(found[0].path, engine_));
}

TEST_F(CheckpointTest, SavingAgainReplacesAndLeavesNoOther) {
  save_checkpoint(out_.path(), 7, engine_, contents());
  auto other = contents();
  other.trainer_state = [] { return nlohmann::ordered_json{{"step", 8}}; };
  const fs::path path = save_checkpoint(out_.path(), 7, engine_, other);
  EXPECT_EQ(nlohmann::json::parse(load_checkpoint(path, engine_)).at("step"), 8);
  EXPECT_EQ(std::distance(fs::directory_iterator(out_.path()), fs::directory_iterator()), 1);
}

TEST_F(CheckpointTest, SweepRemovesLeftoversAndNothingElse) {
  const fs::path seven = save_checkpoint(out_.path(), 7, engine_, contents());
  const fs::path eight = save_checkpoint(out_.path(), 8, engine_, contents());
  fs::rename(eight, eight.string() + ".old");
  for (const char* name : {"checkpoint-7.old", "checkpoint-7.partial", "checkpoint-9.partial/optimizer",
                           "checkpoint-x.partial", "mine.old", "checkpoint-9.partial.old"}) {
    fs::create_directories(out_ / name);
  }
  const std::vector<fs::path> expected = {out_ / "checkpoint-7.old", out_ / "checkpoint-7.partial",
                                          out_ / "checkpoint-9.partial"};
  EXPECT_EQ(sweep_leftovers(out_.path()), expected);
  for (const fs::path& path : expected) EXPECT_FALSE(fs::exists(path)) << path;
  for (const char* name : {"checkpoint-x.partial", "mine.old", "checkpoint-9.partial.old"}) {
    EXPECT_TRUE(fs::exists(out_ / name)) << name;
  }
  EXPECT_EQ(damage_of(seven), std::nullopt);
  EXPECT_EQ(damage_of(eight), std::nullopt);
  EXPECT_TRUE(sweep_leftovers(out_ / "nowhere").empty());
}

TEST_F(CheckpointTest, TooLittleSpaceIsSaidBeforeAnythingIsWritten) {
  int64_t weights = 0;
  for (const auto& master : engine_.gather_masters()) weights += static_cast<int64_t>(master.tensor.nbytes());
  int64_t owned = 0;
  for (const auto& state : engine_.optimizer_states()) owned += state.owned.size();
  EXPECT_EQ(optimizer_shard_bytes(engine_.optimizer_states()), 12 * owned);
  const int64_t needed = 12 * owned + weights + (1 << 20);
  auto tight = contents();
  bool wrote = false;
  tight.write_weights = [&](const fs::path&, const auto&) { wrote = true; };
  tight.free_space = [&](const fs::path&) { return needed - 1; };
  try {
    save_checkpoint(out_.path(), 7, engine_, tight);
    FAIL() << "saved without space";
  } catch (const CheckpointError& error) {
    const std::string text = error.what();
    for (const std::string& part :
         {(out_ / "checkpoint-7").string(), std::string("a checkpoint needs "), std::to_string(12 * owned),
          std::to_string(weights), std::string("make room"), std::string("--output_dir")}) {
      EXPECT_NE(text.find(part), std::string::npos) << text << " lacks " << part;
    }
  }
  EXPECT_FALSE(wrote);
  EXPECT_TRUE(fs::is_empty(out_.path()));
  tight.free_space = [&](const fs::path&) { return needed; };
  EXPECT_NO_THROW(save_checkpoint(out_.path(), 7, engine_, tight));
}

TEST_F(CheckpointTest, TheSpaceThatASaveAsksForIsKnownBeforeAStep) {
  for (const bool is_full : {false, true}) {
    auto tight = contents();
    if (is_full) tight.full_weights = FullWeightsOptions{.config_json = "{}"};
    int64_t free = int64_t{1} << 30;
    tight.free_space = [&](const fs::path&) { return free; };
    const auto saves = [&] {
      try {
        save_checkpoint(out_.path(), 7, engine_, tight);
        return true;
      } catch (const CheckpointError&) {
        return false;
      }
    };
    int64_t enough = free, little = 0;
    while (enough - little > 1) {  // the bytes that a save asks for
      free = little + (enough - little) / 2;
      (saves() ? enough : little) = free;
    }
    free = enough;
    EXPECT_NO_THROW(require_space(out_ / "not/there/yet", engine_, tight));
    free = enough - 1;
    try {
      require_space(out_ / "not/there/yet", engine_, tight);
      ADD_FAILURE() << "one byte less is enough";
    } catch (const CheckpointError& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.starts_with((out_ / "not/there/yet").string() + ": a checkpoint needs ")) << text;
      EXPECT_NE(text.find("make room"), std::string::npos) << text;
    }
    EXPECT_FALSE(fs::exists(out_ / "not"));
  }
}

TEST(CheckpointOfTwoRanks, TheSpaceOfAllRanksShardsIsAskedFor) {
  const auto dp = comm::make_fake_communicator({.rank = 0, .size = 2});
  const auto model = testing::tiny_qwen2();
  parallel::ShardedModel engine(*model, *dp, {.policy = parallel::Zero2()});
  const int64_t shard = optimizer_shard_bytes(engine.optimizer_states());
  const ScratchFolder out;
  try {
    save_checkpoint(out.path(), 1, engine,
                    {.write_weights = [](const fs::path&, const auto&) {},
                     .trainer_state = [] { return nlohmann::ordered_json{}; },
                     .free_space = [](const fs::path&) { return int64_t{0}; }});
    FAIL() << "saved without space";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find(detail::concat("2 x ", shard, " bytes")), std::string::npos)
        << error.what();
  }
}

/// What each of two ranks got from saving step 1 into its own `parents[rank]`.
std::vector<std::string> save_on_two_ranks(const std::vector<fs::path>& parents) {
  std::vector<std::string> got(2);
  testing::run_ranks(2, [&](std::shared_ptr<comm::Communicator> dp) {
    const auto model = testing::tiny_qwen2();
    parallel::ShardedModel engine(*model, *dp, {.policy = parallel::Zero2()});
    try {
      save_checkpoint(parents[dp->rank()], 1, engine,
                      {.write_weights = [](const fs::path&, const auto&) {},
                       .trainer_state = [] { return nlohmann::ordered_json{}; }});
    } catch (const Error& error) {
      got[dp->rank()] = error.what();
    }
  });
  return got;
}

TEST(CheckpointOfTwoRanks, DisksOfTheirOwnAreRefusedAndLeftClean) {
  const ScratchFolder first;
  const ScratchFolder second;
  for (const std::string& text : save_on_two_ranks({first.path(), second.path()})) {
    EXPECT_NE(text.find("rank 1 has written it, but rank 0 does not see it"), std::string::npos) << text;
    EXPECT_NE(text.find("--output_dir must be on storage that all nodes share"), std::string::npos) << text;
  }
  EXPECT_TRUE(fs::is_empty(first.path()));
  EXPECT_TRUE(fs::is_empty(second.path()));
}

TEST(CheckpointOfTwoRanks, OneSharedFolderHoldsBothShards) {
  const ScratchFolder out;
  EXPECT_EQ(save_on_two_ranks({out.path(), out.path()}), (std::vector<std::string>{"", ""}));
  for (int rank : {0, 1})
    EXPECT_TRUE(fs::exists(out.path() / "checkpoint-1" / optimizer_shard_name(rank, 2)));
}

TEST_F(CheckpointTest, ShardNamesSortByRank) {
  EXPECT_EQ(optimizer_shard_name(2, 4), "optimizer/rank-00002-of-00004.safetensors");
}

}  // namespace
}  // namespace apus::checkpoint
