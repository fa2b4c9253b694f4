// No row of a batch sees another one, however the rows lie in memory.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "apus/comm/fake_communicator.h"
#include "apus/data/collator.h"
#include "apus/data/packing.h"
#include "tests/support/tiny_training.h"

namespace apus::testing {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kAltered = 2;

/// Rows of tiny_rows; if asked for, the tokens of one of them are others.
std::shared_ptr<const data::Dataset> rows_of(Job job, bool altered) {
  const auto plain = tiny_rows(job, kRows);
  const auto alter = [](std::vector<int32_t>& ids) {
    for (int32_t& id : ids) id = (id + 31) % 127;
  };
  std::vector<data::SftRow> sft;
  std::vector<data::DpoRow> dpo;
  for (int64_t i = 0; i < kRows; ++i) {
    const bool change = altered && i == kAltered;
    if (job == Job::kFullSft) {
      sft.push_back(dynamic_cast<const data::SftDataset&>(*plain).row(i));
      if (change) alter(sft.back().input_ids);
    } else {
      dpo.push_back(dynamic_cast<const data::DpoDataset&>(*plain).row(i));
      if (change) alter(dpo.back().prompt_ids);
    }
  }
  if (job == Job::kFullSft) return std::make_shared<data::SftDataset>(std::move(sft));
  return std::make_shared<data::DpoDataset>(std::move(dpo));
}

/// All rows as one batch: as they are, or in packs.
data::Batch batch_of(const std::shared_ptr<const data::Dataset>& rows, data::BatchLayout layout,
                     bool in_packs) {
  auto dataset = rows;
  if (in_packs)
    dataset = std::make_shared<data::PackedDataset>(rows, data::PackingOptions{.packing_length = 48});
  std::vector<int64_t> all(static_cast<size_t>(dataset->size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return dataset->collate(all, {.layout = layout});
}

class RowIsolation : public ::testing::Test {
 protected:
  static std::unique_ptr<models::Qwen2> make_model(Job job) { return tiny_model({.job = job}); }

  /// Log-probabilities of each sequence.
  static at::Tensor log_probs(Job job, const data::Batch& batch) {
    const at::NoGradGuard no_grad;
    const auto dp = comm::make_fake_communicator({});
    const auto model = make_model(job);
    parallel::ShardedModel engine(*model, *dp, {});
    const std::vector<std::string> adapters =
        job == Job::kFullSft ? std::vector<std::string>{} : std::vector<std::string>{"default"};
    return train::sequence_log_probs(engine, batch, adapters);
  }

  static void expect_isolated(Job job, data::BatchLayout layout, bool in_packs) {
    const data::Batch before = batch_of(rows_of(job, false), layout, in_packs);
    const data::Batch after = batch_of(rows_of(job, true), layout, in_packs);
    ASSERT_EQ(before.ordinals, after.ordinals);
    ASSERT_EQ(before.rows, kRows);
    const at::Tensor was = log_probs(job, before), is = log_probs(job, after);
    for (int64_t sequence = 0; sequence < was.numel(); ++sequence) {
      const int64_t ordinal = before.ordinals[static_cast<size_t>(sequence % kRows)];
      const float old_value = was.const_data_ptr<float>()[sequence],
                  value = is.const_data_ptr<float>()[sequence];
      if (ordinal == kAltered) {
        EXPECT_GT(std::abs(old_value - value), 1e-3) << "the altered row itself";
      } else {
        EXPECT_EQ(old_value, value) << "row " << ordinal << ", sequence " << sequence;
      }
    }
  }
};

TEST_F(RowIsolation, AnAlteredRowLeavesTheOthersLogProbabilitiesBitEqual) {
  for (const Job job : {Job::kFullSft, Job::kLoraDpo})
    for (const data::BatchLayout layout : {data::BatchLayout::kPadded, data::BatchLayout::kPacked})
      for (const bool in_packs : {false, true}) {
        SCOPED_TRACE(detail::concat(job == Job::kFullSft ? "SFT" : "DPO",
                                    layout == data::BatchLayout::kPadded ? ", padded" : ", packed",
                                    in_packs ? ", packs" : ""));
        expect_isolated(job, layout, in_packs);
      }
}

TEST_F(RowIsolation, PaddingTokensChangeNothing) {
  const auto rows = rows_of(Job::kFullSft, false);
  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), int64_t{0});
  const at::Tensor zeros = log_probs(Job::kFullSft, rows->collate(all, {.pad_id = 0}));
  EXPECT_TRUE(zeros.equal(log_probs(Job::kFullSft, rows->collate(all, {.pad_id = 77}))));
}

TEST_F(RowIsolation, GradientsOfOneRowReachNoOtherRow) {
  for (const data::BatchLayout layout : {data::BatchLayout::kPadded, data::BatchLayout::kPacked}) {
    const auto model = make_model(Job::kFullSft);
    const data::Batch batch = batch_of(rows_of(Job::kFullSft, false), layout, true);
    nn::PassContext context{.rows = batch.layout};
    model->prepare(context);
    const at::Tensor input_TD = model->embed(batch.tokens_T, context).detach().requires_grad_();
    at::Tensor hidden_TD = input_TD;
    for (nn::Block* block : model->blocks()) hidden_TD = block->forward(hidden_TD, context);
    const int64_t first = batch.layout->first_row(1), length = batch.layout->lengths[1];
    hidden_TD.narrow(0, first, length).square().sum().backward();
    const at::Tensor touched_T = input_TD.grad().abs().sum(1);
    for (int64_t row = 0; row < touched_T.numel(); ++row) {
      const bool own = row >= first && row < first + length;
      EXPECT_EQ(touched_T.const_data_ptr<float>()[row] != 0, own) << "row " << row;
    }
  }
}

}  // namespace
}  // namespace apus::testing
