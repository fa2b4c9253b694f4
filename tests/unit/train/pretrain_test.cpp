// Pre-training from a file of texts: cut to max_length, packed, trained, accounted for.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/comm/fake_communicator.h"
#include "apus/data/packing.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer_config.h"
#include "apus/train/sft_trainer.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

constexpr int64_t kMaxLength = 24;

class Pretrain : public ::testing::Test {
 protected:
  std::shared_ptr<const data::SftDataset> prepared(data::Truncation truncation) {
    std::string lines;
    for (int i = 0; i < 6; ++i)
      lines += R"({"text": "Swifts sleep in flight, number )" + std::to_string(i) + R"(.", "channel": ")" +
               (i % 2 == 0 ? "books" : "web") + "\"}\n";
    lines += R"({"text": ")" + long_text() + "\"}\n";
    lines += R"({"messages": [{"role": "assistant", "content": "one message"}]})"
             "\n";
    lines += R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"
             "\n";
    NullLogger logger;
    return data::prepare_sft(tokenizer_,
                             {.read = {.files = {folder_.put("texts.jsonl", lines).string()},
                                       .max_length = kMaxLength,
                                       .truncation = truncation},
                              .encode = {.task = data::SftTask::kPretrain}},
                             logger);
  }

  static std::string long_text() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "word" + std::to_string(i) + " ";
    return text;
  }

  ScratchFolder folder_;
  data::TokenizerFolder tokenizer_ =
      data::load_tokenizer_folder(APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer");
};

TEST_F(Pretrain, LongTextsFollowTheTruncationStrategyAndEveryRowIsCounted) {
  const std::vector<int32_t> whole = tokenizer_.tokenizer->encode(long_text());
  ASSERT_GT(static_cast<int64_t>(whole.size()), kMaxLength);
  const auto right = prepared(data::Truncation::kRight), left = prepared(data::Truncation::kLeft),
             dropped = prepared(data::Truncation::kDelete);
  ASSERT_EQ(right->size(), 8);
  EXPECT_EQ(right->row(6).input_ids, std::vector<int32_t>(whole.begin(), whole.begin() + kMaxLength));
  EXPECT_EQ(left->row(6).input_ids.back(), *tokenizer_.eos_id) << "the end, with its eos";
  EXPECT_EQ(right->row(6).labels, right->row(6).input_ids) << "every token is trained";
  EXPECT_EQ(right->row(0).input_ids.back(), *tokenizer_.eos_id);
  EXPECT_EQ(dropped->size(), 7);
  for (const auto& dataset : {right, left, dropped}) {
    const data::RowReport& report = dataset->origin().report;
    EXPECT_EQ(report.input(), 9);
    EXPECT_EQ(report.whole() + report.truncated() + report.dropped(), 9);
  }
  EXPECT_EQ(dropped->origin().report.counts_by_code(),
            (std::map<std::string, int64_t>{{"too_long", 1}, {"unknown_form", 1}}));
}

TEST_F(Pretrain, PacksOfTextsTrain) {
  const auto rows = prepared(data::Truncation::kRight);
  const auto packs = std::make_shared<data::PackedDataset>(
      rows, data::PackingOptions{.packing_length = 2 * kMaxLength, .max_length = kMaxLength});
  ASSERT_LT(packs->size(), rows->size());
  const auto dp = comm::make_fake_communicator({});
  models::Qwen2 model({.vocab_size = 448}, at::kFloat);
  models::init_random(model, {.seed = 3, .standard_deviation = 0.2});
  nn::make_trainable(model);
  parallel::ShardedModel engine(model, *dp, {});
  SystemClock clock;
  NullLogger logger;
  TrainerContext context{.clock = &clock, .logger = &logger};
  nlohmann::ordered_json last;
  context.callbacks.on_log = [&](const std::string&, const nlohmann::ordered_json& record) { last = record; };
  TrainerOptions options = testing::tiny_options(
      {.accumulation = 2, .layout = data::BatchLayout::kPacked, .steps = 12, .learning_rate = 1e-2});
  SftTrainer trainer(engine, {.trainer = options}, context);
  const double before = trainer.evaluate(*rows).loss;
  EXPECT_NEAR(trainer.evaluate(*packs).loss, before, 1e-5 * before)
      << "a text in a pack counts as it does alone";
  trainer.run(packs, rows);
  EXPECT_LT(last.at("eval_loss").get<double>(), 0.7 * before);
  EXPECT_GT(last.at("eval_token_acc").get<double>(), 0.1);
  EXPECT_TRUE(last.contains("eval_loss_books") && last.contains("eval_loss_web")) << last.dump();
}

}  // namespace
}  // namespace apus::train
