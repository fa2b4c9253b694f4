// Preference rows of several turns, from the file to the trained model.
#include <gtest/gtest.h>

#include "apus/comm/fake_communicator.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer_config.h"
#include "apus/train/dpo_trainer.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

/// One conversation in the three shapes of several turns.
constexpr const char* kRows[] = {
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Sum?"}, {"role": "assistant", "content": "four"}], "rejected_response": "five"})",
    R"({"prompt": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Sum?"}], "chosen": [{"role": "assistant", "content": "four"}],
        "rejected": [{"role": "assistant", "content": "five"}], "margin": 0.5})",
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Sum?"}, {"role": "assistant", "content": "four"}],
        "rejected_messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Sum?"}, {"role": "assistant", "content": "five"}]})"};

class DpoMultiTurn : public ::testing::Test {
 protected:
  DpoMultiTurn() {
    std::string lines;
    for (std::string row : kRows) {
      std::erase(row, '\n');
      lines += row + "\n";
    }
    NullLogger logger;
    rows_ = data::prepare_dpo(tokenizer_, {.read = {.files = {folder_.put("rows.jsonl", lines).string()}}},
                              logger);
  }

  std::string decoded(const std::vector<int32_t>& ids) const { return tokenizer_.tokenizer->decode(ids); }

  ScratchFolder folder_;
  data::TokenizerFolder tokenizer_ =
      data::load_tokenizer_folder(APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer");
  std::shared_ptr<const data::DpoDataset> rows_;
};

TEST_F(DpoMultiTurn, EarlierTurnsArePromptAndOnlyTheLastAnswersAreTrained) {
  ASSERT_EQ(rows_->size(), 3);
  for (int64_t i = 0; i < 3; ++i) {
    const data::DpoRow row = rows_->row(i);
    EXPECT_EQ(row.prompt_ids, rows_->row(0).prompt_ids) << i;
    EXPECT_EQ(decoded(row.chosen_ids), "four<|im_end|>\n") << i;
    EXPECT_EQ(decoded(row.rejected_ids), "five<|im_end|>\n") << i;
    const std::string prompt = decoded(row.prompt_ids);
    EXPECT_NE(prompt.find("<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nSum?"),
              std::string::npos)
        << prompt;
    EXPECT_TRUE(prompt.ends_with("<|im_start|>assistant\n")) << prompt;
  }
  const data::Batch batch = rows_->collate(std::vector<int64_t>{0, 1, 2}, {});
  EXPECT_EQ(batch.pairs, 3);
  const data::DpoRow first = rows_->row(0);
  EXPECT_EQ(batch.target_count(),
            static_cast<int64_t>(3 * (first.chosen_ids.size() + first.rejected_ids.size())));
  ASSERT_TRUE(batch.pair_margins_P.defined());
  EXPECT_EQ(batch.pair_margins_P[1].item<float>(), 0.5F);
  EXPECT_EQ(batch.pair_margins_P[0].item<float>(), 0.0F) << "a row without a margin";
}

TEST_F(DpoMultiTurn, TrainingLearnsToPreferTheChosenAnswer) {
  const auto dp = comm::make_fake_communicator({});
  models::Qwen2 model({.vocab_size = 448}, at::kFloat);
  models::init_random(model, {.seed = 3, .standard_deviation = 0.2});
  peft::LoraConfig config{.r = 4, .lora_alpha = 8};
  config.targets.all_linear = true;
  peft::apply_lora(model, config, "default", {.seed = 5});
  parallel::ShardedModel engine(model, *dp, {});
  SystemClock clock;
  NullLogger logger;
  const testing::TinyRun run{.accumulation = 2, .steps = 6, .learning_rate = 1e-2};
  DpoTrainer trainer(engine, {.trainer = testing::tiny_options(run)}, {.clock = &clock, .logger = &logger});
  const double before = trainer.evaluate(*rows_).loss;
  EXPECT_TRUE(trainer.run(rows_).finished);
  const EvaluationReport after = trainer.evaluate(*rows_);
  EXPECT_LT(after.loss, 0.8 * before);
  EXPECT_EQ(after.metrics.at(2), 1.0) << "rewards/accuracies";
}

}  // namespace
}  // namespace apus::train
