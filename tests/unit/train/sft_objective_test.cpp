#include "apus/train/sft_objective.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

using Weights = std::vector<int64_t>;
using testing::Job;

/// Rows of three channels and none; some tokens weigh 0, 0.5 or 2.
std::vector<data::SftRow> rows_of_channels() {
  const PhiloxSequence random(21, "channels");
  const char* channels[] = {"code", "", "web", "code", "maths"};
  std::vector<data::SftRow> rows;
  for (size_t r = 0; r < 5; ++r) {
    data::SftRow row{.input_ids = testing::random_ids(random, r, 5 + static_cast<int64_t>(r)),
                     .channel = channels[r]};
    row.labels = row.input_ids;
    row.labels[0] = data::kIgnoredLabel;
    row.weights.assign(row.labels.size(), 1.0F);
    row.weights[0] = 0.0F;
    if (r % 2 == 0) {
      row.weights[2] = 0.0F;
      row.weights[3] = 0.5F;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

data::Batch batch_of(const std::vector<data::SftRow>& rows,
                     data::BatchLayout layout = data::BatchLayout::kPadded) {
  std::vector<int64_t> ordinals;
  for (size_t r = 0; r < rows.size(); ++r) ordinals.push_back(static_cast<int64_t>(r));
  data::Batch batch = data::collate_sft(rows, ordinals, {.layout = layout});
  batch.places = ordinals;
  return batch;
}

class SftObjectiveTest : public ::testing::Test {
 protected:
  /// Loss sum and metric sums.
  std::pair<double, std::vector<double>> run(const SftObjective& objective, const data::Batch& batch) {
    at::NoGradGuard no_grad;
    const ObjectiveResult result = objective.run(engine_, batch);
    const double* sums = result.metric_sums.const_data_ptr<double>();
    return {result.loss_sums.at(0).item<double>(), {sums, sums + result.metric_sums.numel()}};
  }

  testing::TinyRun run_{.job = Job::kFullSft};
  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
  std::unique_ptr<models::Qwen2> model_ = testing::tiny_model(run_);
  parallel::ShardedModel engine_{*model_, *dp_, {}};
};

TEST_F(SftObjectiveTest, LossesOfChannelsAreThoseOfTheirRowsAlone) {
  const std::vector<data::SftRow> rows = rows_of_channels();
  const SftObjective objective({.channels = {"code", "maths", "web"}});
  for (const auto layout : {data::BatchLayout::kPadded, data::BatchLayout::kPacked}) {
    const data::Batch batch = batch_of(rows, layout);
    const Weights weights = objective.weights(batch);
    const auto [loss, sums] = run(objective, batch);
    ASSERT_EQ(sums.size(), 4u);
    for (size_t c = 0; c < 3; ++c) {
      std::vector<data::SftRow> own;
      for (const data::SftRow& row : rows)
        if (row.channel == objective.options().channels[c]) own.push_back(row);
      const SftObjective plain;
      EXPECT_EQ(weights.at(1 + c), plain.weights(batch_of(own)).at(0));
      EXPECT_NEAR(sums[1 + c], run(plain, batch_of(own)).first, 1e-5);
    }
    const int64_t rest = weights[0] - weights[1] - weights[2] - weights[3];
    EXPECT_EQ(rest, SftObjective().weights(batch_of({rows[1]})).at(0)) << "the row without a channel";
    EXPECT_NEAR(loss, run(SftObjective(), batch).first, 1e-5);
  }
}

TEST_F(SftObjectiveTest, TokenAccuracyCountsTheMostProbableTokens) {
  std::vector<data::SftRow> rows = rows_of_channels();
  const data::Batch plain = batch_of(rows);
  at::NoGradGuard no_grad;
  nn::PassContext context{.rows = plain.layout};
  const at::Tensor hidden = engine_.forward(plain.tokens_T, context).index_select(0, plain.target_rows_M);
  const at::Tensor best =
      at::argmax(at::linear(model_->final_norm(hidden, context), model_->head_weight(context)), 1);
  const int64_t* winners = best.const_data_ptr<int64_t>();
  // Every other label becomes what the model would say; labels need not be the tokens.
  int64_t m = 0, wanted = 0;
  for (data::SftRow& row : rows) {
    for (size_t t = 1; t < row.labels.size(); ++t, ++m) {
      row.labels[t] = static_cast<int32_t>(winners[m]);
      if (m % 2 == 1) row.labels[t] = static_cast<int32_t>((winners[m] + 1) % 100);
      if (m % 2 == 0 && row.weights[t] != 0.0F) ++wanted;
    }
  }
  const auto [loss, sums] = run(SftObjective(), batch_of(rows));
  EXPECT_EQ(sums.at(0), static_cast<double>(wanted));
  EXPECT_GT(wanted, 3);
}

TEST_F(SftObjectiveTest, NamesItsMetricsAndTheirDivisors) {
  const SftObjective objective({.channels = {"web", "code"}});
  ASSERT_EQ(objective.metrics().size(), 3u);
  EXPECT_EQ(objective.metrics()[0].name, "token_acc");
  EXPECT_EQ(objective.metrics()[0].divisor, 0u);
  EXPECT_EQ(objective.metrics()[1].name, "loss_web");
  EXPECT_EQ(objective.metrics()[1].divisor, 1u);
  EXPECT_EQ(objective.metrics()[2].divisor, 2u);
  EXPECT_EQ(objective.weights({}), (Weights{0, 0, 0}));
}

TEST_F(SftObjectiveTest, RefusesAChannelThatIsNamedTwiceOrByNothing) {
  EXPECT_THROW(SftObjective({.channels = {"a", "b", "a"}}), ConfigError);
  EXPECT_THROW(SftObjective({.channels = {""}}), ConfigError);
}

TEST_F(SftObjectiveTest, AnEmptyBatchCountsNothingAndStillRuns) {
  const SftObjective objective({.channels = {"a"}});
  const data::Batch empty = data::collate_sft({}, {}, {});
  EXPECT_EQ(objective.weights(empty), (Weights{0, 0}));
  const ObjectiveResult result = objective.run(engine_, empty);
  EXPECT_EQ(result.loss_sums.at(0).item<float>(), 0.0F);
  EXPECT_FALSE(result.metric_sums.defined());
}

/// The loss of one batch under an adapter with dropout.
class SftDropout : public ::testing::Test {
 protected:
  /// B is not zero, so that what A gets makes a difference.
  static std::unique_ptr<models::Qwen2> adapted() {
    auto model = testing::frozen_tiny_model({});
    peft::LoraConfig config{.r = 4, .lora_alpha = 32, .lora_dropout = 0.5};
    config.targets.all_linear = true;
    peft::apply_lora(*model, config, "default", {.seed = 5});
    for (auto& parameter : peft::adapter_parameters(*model, "default"))
      if (parameter.name.find("lora_B") != std::string::npos) parameter.tensor.detach().fill_(0.05);
    return model;
  }

  double loss(const SftObjective& objective, const data::Batch& batch) {
    return objective.run(engine_, batch).loss_sums.at(0).item<double>();
  }

  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
  std::unique_ptr<models::Qwen2> model_ = adapted();
  parallel::ShardedModel engine_{*model_, *dp_, {}};
  SftObjective dropping_{SftObjectiveOptions{.adapters = {"default"}, .dropout_seed = 42}};
  SftObjective keeping_{SftObjectiveOptions{.adapters = {"default"}}};
};

TEST_F(SftDropout, DependsOnEpochPlaceAndSeedAndIsOffWithoutATape) {
  data::Batch batch = batch_of(rows_of_channels());
  const double first = loss(dropping_, batch);
  EXPECT_EQ(first, loss(dropping_, batch)) << "the same coordinates, the same mask";
  EXPECT_NE(first, loss(keeping_, batch));
  EXPECT_NE(first, loss(SftObjective({.adapters = {"default"}, .dropout_seed = 43}), batch));
  batch.epoch = 1;
  EXPECT_NE(first, loss(dropping_, batch));
  batch.epoch = 0;
  batch.places[0] = 99;
  EXPECT_NE(first, loss(dropping_, batch));
  at::NoGradGuard no_grad;
  EXPECT_EQ(loss(dropping_, batch), loss(keeping_, batch)) << "an evaluation drops nothing";
}

TEST_F(SftDropout, ABatchThatDoesNotSayWhereItsRowsStandIsRefused) {
  data::Batch batch = batch_of(rows_of_channels());
  batch.places.clear();
  EXPECT_THROW(loss(dropping_, batch), ConfigError);
  EXPECT_NO_THROW(loss(keeping_, batch));
  EXPECT_NO_THROW(loss(dropping_, data::collate_sft({}, {}, {}))) << "a micro-batch without rows has none";
}

}  // namespace
}  // namespace apus::train
