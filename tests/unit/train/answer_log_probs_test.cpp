#include "apus/train/answer_log_probs.h"

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include "apus/comm/fake_communicator.h"
#include "apus/train/objective.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

using testing::Job;

/// Two pairs: the first has the longer chosen answer, the second the longer rejected one.
data::Batch two_pairs(data::BatchLayout layout) {
  const data::DpoDataset rows({{.prompt_ids = {1, 2, 3}, .chosen_ids = {4, 5, 6, 7}, .rejected_ids = {8, 9}},
                               {.prompt_ids = {1, 2}, .chosen_ids = {4}, .rejected_ids = {8, 9, 10}}});
  return rows.collate(std::vector<int64_t>{0, 1}, {.layout = layout});
}

std::vector<float> floats(const at::Tensor& values) {
  const at::Tensor kept = values.contiguous();
  return {kept.const_data_ptr<float>(), kept.const_data_ptr<float>() + kept.numel()};
}

/// The weights of one answer's tokens, in their order.
std::vector<float> weights_of(const data::Batch& batch, const at::Tensor& weights, int64_t answer) {
  return floats(weights.masked_select(batch.target_sequences_M.eq(answer)));
}

struct Bench {
  testing::TinyRun run{.job = Job::kLoraDpo};
  std::unique_ptr<comm::Communicator> dp = comm::make_fake_communicator({});
  std::unique_ptr<models::Qwen2> model = testing::tiny_model(run);
  parallel::ShardedModel engine{*model, *dp, {}};
};

TEST(AnswerLogProbs, CountsTheTokensOfEachAnswer) {
  EXPECT_EQ(floats(answer_tokens(two_pairs(data::BatchLayout::kPadded))), (std::vector<float>{4, 1, 2, 3}));
}

TEST(AnswerLogProbs, TokensBeyondTheShorterAnswerCountLdAlpha) {
  for (const auto layout :
       {data::BatchLayout::kPadded, data::BatchLayout::kPacked, data::BatchLayout::kSharedPrompt}) {
    const data::Batch batch = two_pairs(layout);
    const at::Tensor weights = length_weights(batch, 0.25);
    EXPECT_EQ(weights_of(batch, weights, 0), (std::vector<float>{1, 1, 0.25, 0.25}));
    EXPECT_EQ(weights_of(batch, weights, 2), (std::vector<float>{1, 1}));
    EXPECT_EQ(weights_of(batch, weights, 1), (std::vector<float>{1}));
    EXPECT_EQ(weights_of(batch, weights, 3), (std::vector<float>{1, 0.25, 0.25}));
  }
}

TEST(AnswerLogProbs, WeighedAndPlainSumsComeFromOnePass) {
  const at::NoGradGuard no_grad;
  Bench bench;
  const data::Batch batch = two_pairs(data::BatchLayout::kPadded);
  const at::Tensor wanted = sequence_log_probs(bench.engine, batch, {"default"});
  const at::Tensor tokens = target_log_probs(bench.engine, batch, {"default"});
  const at::Tensor weights = length_weights(batch, 0.5);
  const AnswerLogProbs found =
      answer_log_probs(bench.engine, batch, {.adapters = {"default"}, .token_weights_M = weights});
  EXPECT_TRUE(found.plain.equal(wanted));
  for (int64_t answer = 0; answer < 4; ++answer) {
    const at::Tensor own = tokens.mul(weights).masked_select(batch.target_sequences_M.eq(answer));
    EXPECT_NEAR(found.weighted[answer].item<float>(), own.sum().item<float>(), 1e-5);
  }
  const AnswerLogProbs alone = answer_log_probs(bench.engine, batch, {.adapters = {"default"}});
  EXPECT_TRUE(alone.weighted.is_same(alone.plain));
}

TEST(AnswerLogProbs, AnEmptyBatchHasTwoAnswersOfNothing) {
  const at::NoGradGuard no_grad;
  Bench bench;
  const data::Batch empty = testing::tiny_rows(Job::kLoraDpo, 2)->collate({}, {});
  const AnswerLogProbs found = answer_log_probs(
      bench.engine, empty, {.adapters = {"default"}, .token_weights_M = length_weights(empty, 0.5)});
  EXPECT_EQ(floats(found.weighted), (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace apus::train
