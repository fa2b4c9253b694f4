// Prompts kept once (BatchLayout::kSharedPrompt): with attention as the layout describes it, the
// log-probabilities are those of whole answers. No model reads the layout yet, so a slow reference with an
// explicit mask does.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"
#include "apus/data/collator.h"
#include "apus/ops/rotary.h"
#include "apus/ops/token_log_probs.h"
#include "tests/support/tiny_training.h"

namespace apus::testing {
namespace {

/// bool [T, T]: what each row sees, as RowLayout says.
at::Tensor visible_rows(const nn::RowLayout& layout) {
  const at::Tensor seen_TT = at::zeros({layout.rows(), layout.rows()}, at::kBool);
  for (int64_t s = 0; s < layout.batch(); ++s) {
    const int64_t first = layout.first_row(s), length = layout.lengths[static_cast<size_t>(s)];
    seen_TT.narrow(0, first, length).narrow(1, first, length).copy_(at::ones({length, length}).tril());
    const int64_t prefix = layout.prefixes.empty() ? -1 : layout.prefixes[static_cast<size_t>(s)];
    if (prefix < 0) continue;
    seen_TT.narrow(0, first, length)
        .narrow(1, layout.first_row(prefix), layout.lengths[static_cast<size_t>(prefix)])
        .fill_(true);
  }
  return seen_TT;
}

/// A Qwen2 in plain ATen whose attention reads a mask over the whole batch.
class MaskedQwen2 {
 public:
  explicit MaskedQwen2(const models::Qwen2& model) {
    for (const auto& parameter : model.named_parameters()) weights_[parameter.name] = parameter.tensor;
  }

  /// fp32 [2P], as train::sequence_log_probs.
  at::Tensor answer_log_probs(const data::Batch& batch) const {
    const at::Tensor mask_TT = visible_rows(*batch.layout);
    const ops::RotaryTables turns =
        ops::rotary_tables(batch.layout->positions_T, config_.head_dim, config_.rope_theta, at::kFloat);
    at::Tensor x_TD = weight("model.embed_tokens.weight").index_select(0, batch.tokens_T);
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      x_TD = x_TD + attention(layer + "self_attn.", norm(layer + "input_layernorm", x_TD), turns, mask_TT);
      const at::Tensor y_TD = norm(layer + "post_attention_layernorm", x_TD);
      x_TD = x_TD + linear(layer + "mlp.down_proj", at::silu(linear(layer + "mlp.gate_proj", y_TD)) *
                                                        linear(layer + "mlp.up_proj", y_TD));
    }
    const at::Tensor hidden_MD = norm("model.norm", x_TD).index_select(0, batch.target_rows_M);
    const at::Tensor log_probs_M =
        ops::token_log_probs(hidden_MD, weight("model.embed_tokens.weight"), batch.targets_M);
    return at::zeros({2 * batch.pairs}).index_add(0, batch.target_sequences_M, log_probs_M);
  }

 private:
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    const auto bias = weights_.find(name + ".bias");
    return at::linear(x, weight(name + ".weight"), bias == weights_.end() ? at::Tensor() : bias->second);
  }
  at::Tensor norm(const std::string& name, const at::Tensor& x_TD) const {
    return x_TD * (x_TD.square().mean(-1, true) + config_.rms_norm_eps).rsqrt() * weight(name + ".weight");
  }
  at::Tensor attention(const std::string& name, const at::Tensor& x_TD, const ops::RotaryTables& turns,
                       const at::Tensor& mask_TT) const {
    const auto heads = [&](const char* part) {
      return linear(name + part, x_TD).unflatten(-1, {-1, config_.head_dim});
    };
    const ops::Rotated turned = ops::rotary(heads("q_proj"), heads("k_proj"), turns.cos_TH, turns.sin_TH);
    const int64_t share = config_.num_attention_heads / config_.num_key_value_heads;
    const at::Tensor q_NTH = turned.q_TNH.transpose(0, 1);
    const at::Tensor k_NTH = turned.k_TKH.repeat_interleave(share, 1).transpose(0, 1);
    const at::Tensor v_NTH = heads("v_proj").repeat_interleave(share, 1).transpose(0, 1);
    const at::Tensor scores_NTT = q_NTH.matmul(k_NTH.transpose(1, 2)) / std::sqrt(double(config_.head_dim));
    const double hidden = -std::numeric_limits<double>::infinity();
    const at::Tensor y_NTH = scores_NTT.masked_fill(mask_TT.logical_not(), hidden).softmax(-1).matmul(v_NTH);
    return linear(name + "o_proj", y_NTH.transpose(0, 1).flatten(1));
  }

  models::Qwen2Config config_{.tie_word_embeddings = true};
  std::map<std::string, at::Tensor> weights_;
};

class SharedPrompt : public ::testing::Test {
 protected:
  SharedPrompt() {
    for (int64_t i = 0; i < 6; ++i) rows_.push_back(dynamic_cast<const data::DpoDataset&>(*pairs_).row(i));
    rows_[2].chosen_prompt_begin = 1;                                   // two whole sequences
    rows_[3].chosen_prompt_begin = rows_[3].rejected_prompt_begin = 2;  // a shorter prompt
    rows_[4].prompt_ids.clear();                                        // none
  }

  data::Batch batch(data::BatchLayout layout) const {
    return data::collate_dpo(rows_, std::vector<int64_t>{0, 1, 2, 3, 4, 5}, {.layout = layout});
  }

  const at::NoGradGuard no_grad_;
  std::shared_ptr<const data::Dataset> pairs_ = tiny_rows(Job::kLoraDpo, 6);
  std::vector<data::DpoRow> rows_;
  std::unique_ptr<models::Qwen2> model_ = tiny_model({.job = Job::kFullSft});
  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
  parallel::ShardedModel engine_{*model_, *dp_, {}};
};

TEST_F(SharedPrompt, TheReferenceIsTheModel) {
  const at::Tensor wanted = train::sequence_log_probs(engine_, batch(data::BatchLayout::kPacked), {});
  const at::Tensor found = MaskedQwen2(*model_).answer_log_probs(batch(data::BatchLayout::kPacked));
  EXPECT_TRUE(found.allclose(wanted, 1e-5, 1e-5)) << found << wanted;
}

TEST_F(SharedPrompt, AnswersHaveTheLogProbabilitiesOfWholeSequences) {
  const data::Batch shared = batch(data::BatchLayout::kSharedPrompt);
  ASSERT_EQ(shared.layout->batch(), 4 * 3 + 2 * 2);
  const at::Tensor wanted = train::sequence_log_probs(engine_, batch(data::BatchLayout::kPacked), {});
  const at::Tensor found = MaskedQwen2(*model_).answer_log_probs(shared);
  EXPECT_TRUE(found.allclose(wanted, 1e-5, 1e-5)) << found << wanted;
}

TEST_F(SharedPrompt, AModelRefusesTheLayout) {
  EXPECT_THROW(train::sequence_log_probs(engine_, batch(data::BatchLayout::kSharedPrompt), {}), NotSupported);
  EXPECT_THROW(train::DpoObjective({}).run(engine_, batch(data::BatchLayout::kSharedPrompt)), NotSupported);
}

}  // namespace
}  // namespace apus::testing
