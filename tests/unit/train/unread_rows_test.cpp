// Rows that no loss reads are left out of the last block (ShardedModelOptions::skip_unread_rows): every
// objective gives the same numbers and gradients as with all rows.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "apus/comm/fake_communicator.h"
#include "tests/support/tensor_checks.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

using data::BatchLayout;
using testing::Job;
using testing::TinyRun;

/// Prompts of 8 tokens before answers of 3 to 6: well below seven eighths are read.
data::Batch masked_batch(Job job, BatchLayout layout) {
  const PhiloxSequence random(11, "masked");
  std::vector<data::SftRow> sft;
  std::vector<data::DpoRow> dpo;
  for (uint64_t row = 0; row < 3; ++row) {
    const int64_t answer = 3 + static_cast<int64_t>(row);
    data::SftRow text{.input_ids = testing::random_ids(random, row, 8 + answer)};
    text.labels = text.input_ids;
    std::fill_n(text.labels.begin(), 8, data::kIgnoredLabel);
    sft.push_back(std::move(text));
    dpo.push_back({.prompt_ids = testing::random_ids(random, 10 + row, 8),
                   .chosen_ids = testing::random_ids(random, 20 + row, answer),
                   .rejected_ids = testing::random_ids(random, 30 + row, 7 - answer)});
  }
  const std::vector<int64_t> ordinals{0, 1, 2};
  data::Batch batch = testing::is_dpo(job)
                          ? data::DpoDataset(std::move(dpo)).collate(ordinals, {.layout = layout})
                          : data::SftDataset(std::move(sft)).collate(ordinals, {.layout = layout});
  batch.places = ordinals;
  return batch;
}

/// The trained model; adapters drop a third and are not zero.
std::unique_ptr<models::Qwen2> model_of(const TinyRun& run) {
  auto model = testing::frozen_tiny_model(run);
  if (testing::is_full(run.job)) {
    nn::make_trainable(*model);
    return model;
  }
  peft::LoraConfig config{.r = 4, .lora_alpha = 8, .lora_dropout = 0.33};
  config.targets.all_linear = true;
  peft::apply_lora(*model, config, "default", {.seed = 5});
  uint64_t seed = 60;
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.tensor.requires_grad())
      parameter.tensor.set_data(testing::random_tensor(parameter.tensor.sizes(), seed++) * 0.2);
  }
  return model;
}

struct Objectives {
  std::unique_ptr<models::Qwen2> reference_model;
  std::unique_ptr<parallel::ShardedModel> reference;
  std::shared_ptr<const Objective> objective;
};

Objectives objective_of(const TinyRun& run, comm::Communicator& dp,
                        const parallel::ShardedModelOptions& options) {
  Objectives made;
  const bool full = testing::is_full(run.job);
  const auto adapters = full ? std::vector<std::string>{} : std::vector<std::string>{"default"};
  if (!testing::is_dpo(run.job)) {
    made.objective =
        std::make_shared<SftObjective>(SftObjectiveOptions{.adapters = adapters, .dropout_seed = 5});
    return made;
  }
  DpoOptions dpo{.policy_adapters = adapters};
  if (!full) dpo.dropout_seed = 5;
  dpo.loss.terms = {{.type = PreferenceLossType::kSigmoid},
                    {.type = PreferenceLossType::kSft, .weight = 0.5}};
  if (full) {
    made.reference_model = testing::frozen_tiny_model(run);
    parallel::ShardedModelOptions frozen = options;
    frozen.use = parallel::ModelUse::kReference;
    made.reference = std::make_unique<parallel::ShardedModel>(*made.reference_model, dp, frozen);
    dpo.reference = Reference::second_model(*made.reference, "");
  }
  made.objective = std::make_shared<DpoObjective>(dpo);
  return made;
}

/// Loss sums, metrics and gradients of one micro-batch, and the loss sums of an evaluation.
std::vector<at::Tensor> numbers(const TinyRun& run, bool skips) {
  const auto dp = comm::make_fake_communicator({});
  parallel::ShardedModelOptions options = testing::tiny_engine_options(run);
  options.skip_unread_rows = skips;
  const auto model = model_of(run);
  parallel::ShardedModel engine(*model, *dp, options);
  const Objectives made = objective_of(run, *dp, options);
  const data::Batch batch = masked_batch(run.job, run.layout);
  EXPECT_LE(8 * batch.target_count(), 7 * batch.tokens_T.size(0)) << "there are rows to leave out";
  std::vector<at::Tensor> result;
  {
    const at::NoGradGuard no_grad;
    result = made.objective->run(engine, batch).loss_sums;
  }
  const ObjectiveResult trained =
      made.objective->run_in_step(engine, batch, std::vector<double>(result.size(), 3.0));
  at::Tensor loss = trained.loss_sums[0];
  for (size_t i = 1; i < trained.loss_sums.size(); ++i) loss = loss + trained.loss_sums[i];
  engine.backward(loss.div(3.0), parallel::MicroBatchPlace::kLast);
  result.insert(result.end(), {loss.detach(), trained.metric_sums});
  for (const auto& group : engine.groups()) result.push_back(group->reduced_grad().clone());
  return result;
}

class UnreadRows : public ::testing::TestWithParam<TinyRun> {};

TEST_P(UnreadRows, LeftOutTheyChangeNoNumber) {
  const std::vector<at::Tensor> wanted = numbers(GetParam(), false), found = numbers(GetParam(), true);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    testing::expect_close(found[i], wanted[i],
                          {.absolute = 2e-6 * testing::largest(wanted[i]), .relative = 1e-4},
                          "tensor " + std::to_string(i));
  }
  EXPECT_GT(testing::largest(wanted.back()), 0.0) << "gradients";
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, UnreadRows,
    ::testing::Values(
        TinyRun{.job = Job::kFullSft, .policy = parallel::Zero3(), .layout = BatchLayout::kPadded},
        TinyRun{
            .job = Job::kFullSft, .recompute = parallel::Recompute::kBlock, .layout = BatchLayout::kPacked},
        TinyRun{
            .job = Job::kLoraSft, .recompute = parallel::Recompute::kPartial, .layout = BatchLayout::kPacked},
        TinyRun{.job = Job::kLoraDpo, .policy = parallel::Fsdp(), .layout = BatchLayout::kPacked},
        TinyRun{
            .job = Job::kLoraDpo, .recompute = parallel::Recompute::kBlock, .layout = BatchLayout::kPadded},
        TinyRun{.job = Job::kFullDpo, .policy = parallel::Zero2(), .layout = BatchLayout::kPacked}),
    [](const auto& test) {
      std::string name = testing::job_name(test.param.job) + std::to_string(test.index);
      std::erase(name, ' ');
      return name;
    });

}  // namespace
}  // namespace apus::train
