#include "apus/parallel/sharded_model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "tests/support/memory_meter.h"
#include "tests/support/tensor_checks.h"
#include "tests/support/tiny_batches.h"

namespace apus::parallel {
namespace {

using testing::tiny_batch;
using testing::tiny_qwen2;

class ShardedModelTest : public ::testing::Test {
 protected:
  at::Tensor loss(ShardedModel& engine) {
    nn::PassContext context{.rows = batch_.layout};
    const at::Tensor hidden = engine.forward(batch_.tokens_T, context);
    return engine.token_log_probs(hidden.index_select(0, batch_.target_rows_M), batch_.targets_M, context)
        .sum()
        .neg();
  }

  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
  std::unique_ptr<models::Qwen2> model_ = tiny_qwen2();
  data::Batch batch_ = tiny_batch();
};

TEST_F(ShardedModelTest, UpdatesLowerTheLoss) {
  ShardedModel engine(*model_, *dp_, {});
  const double before = loss(engine).item<double>();
  for (int step = 0; step < 5; ++step) {
    engine.backward(loss(engine), MicroBatchPlace::kLast);
    EXPECT_GT(engine.update({.lr = 1e-2}), 0.0);
  }
  EXPECT_LT(loss(engine).item<double>(), before);
  EXPECT_EQ(engine.updates(), 5);
}

TEST_F(ShardedModelTest, ClippingScalesTheStepButReportsTheWholeNorm) {
  // pitfalls.md row 23: the norm was right, but nothing was clipped
  ShardedModel engine(*model_, *dp_, {});
  engine.backward(loss(engine), MicroBatchPlace::kLast);
  const at::Tensor grad = engine.groups()[0]->reduced_grad().clone();
  const double norm =
      engine.update({.lr = 0.0, .beta1 = 0.0, .beta2 = 0.0, .weight_decay = 0.0, .max_grad_norm = 0.5});
  EXPECT_NEAR(norm, grad.norm().item<double>(), 1e-4 * norm);
  testing::expect_close(engine.groups()[0]->exp_avg(), grad.mul(0.5 / (norm + 1e-6)), {1e-7, 1e-5},
                        "clipped moment");
}

TEST_F(ShardedModelTest, ANormThatIsNotFiniteChangesNothing) {
  // pitfalls.md row 49
  ShardedModel engine(*model_, *dp_, {});
  const at::Tensor before = engine.groups()[0]->flat_params().clone();
  engine.backward(loss(engine).mul(std::numeric_limits<double>::infinity()), MicroBatchPlace::kLast);
  EXPECT_FALSE(std::isfinite(engine.update({.lr = 1.0})));
  EXPECT_TRUE(engine.groups()[0]->flat_params().equal(before));
  EXPECT_EQ(engine.updates(), 0);
}

TEST_F(ShardedModelTest, AFlagOfTheCallerSkipsTheUpdate) {
  ShardedModel engine(*model_, *dp_, {});
  const at::Tensor before = engine.groups()[0]->flat_params().clone();
  engine.backward(loss(engine), MicroBatchPlace::kLast);
  EXPECT_GT(engine.update({.lr = 1.0, .found_inf = at::ones({1})}), 0.0) << "the norm itself is finite";
  EXPECT_TRUE(engine.groups()[0]->flat_params().equal(before));
  EXPECT_EQ(engine.updates(), 0);
}

TEST_F(ShardedModelTest, AnAsynchronousUpdateIsTheSameOnTheCpu) {
  ShardedModel engine(*model_, *dp_, {});
  engine.backward(loss(engine), MicroBatchPlace::kLast);
  const at::Tensor norm = engine.update_async({.lr = 1e-2});
  EXPECT_EQ(norm.scalar_type(), at::kDouble);
  EXPECT_GT(norm.item<double>(), 0.0);
  EXPECT_EQ(engine.settle_updates(), 1);
}

TEST_F(ShardedModelTest, OnlyPassesWithATapeLetOperationsWriteGradients) {
  ShardedModel engine(*model_, *dp_, {});
  nn::PassContext context{.rows = batch_.layout};
  engine.forward(batch_.tokens_T, context);
  EXPECT_EQ(context.gradients, &engine.units().grad_sink());
  const at::NoGradGuard no_grad;
  engine.forward(batch_.tokens_T, context);
  EXPECT_EQ(context.gradients, nullptr);
}

TEST_F(ShardedModelTest, Bfloat16StatesTrainUnderEveryPolicyToTheSameBits) {
  // Random bits belong to the parameter's elements: groups and shards are cut otherwise, the weights agree.
  std::vector<at::Tensor> trained;
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero3())}) {
    const auto model = tiny_qwen2();
    ShardedModel engine(*model, *dp_,
                        {.policy = policy,
                         .compute_dtype = at::kBFloat16,
                         .optimizer_states = memory::OptimizerStates::kBf16,
                         .grad_accum_dtype = at::kBFloat16,
                         .deterministic = true});
    for (int step = 0; step < 3; ++step) {
      engine.backward(loss(engine), MicroBatchPlace::kLast);
      engine.update({.lr = 1e-2});
    }
    std::vector<at::Tensor> flat;
    std::map<std::string, at::Tensor> by_name;
    for (const auto& parameter : engine.gather_masters()) {
      EXPECT_EQ(parameter.tensor.scalar_type(), at::kBFloat16);
      by_name[parameter.name] = parameter.tensor;
    }
    for (const auto& [name, tensor] : by_name) flat.push_back(tensor.reshape({-1}));
    trained.push_back(at::cat(flat));
  }
  EXPECT_TRUE(trained[0].equal(trained[1]));
}

TEST_F(ShardedModelTest, ALossWithoutATapeContributesZeros) {
  ShardedModel engine(*model_, *dp_, {});
  engine.backward(at::zeros({}), MicroBatchPlace::kLast);
  EXPECT_EQ(engine.update({.lr = 1e-3}), 0.0);
}

TEST_F(ShardedModelTest, MastersComeByNameAndTiedWeightsOnce) {
  ShardedModel engine(*model_, *dp_, {});
  int embeddings = 0;
  for (const auto& parameter : engine.gather_masters())
    embeddings += parameter.name == "model.embed_tokens.weight";
  EXPECT_EQ(embeddings, 1);
  EXPECT_EQ(engine.trainable_elements(), model_->named_parameters().size() ? [&] {
    int64_t sum = 0;
    for (const auto& parameter : model_->named_parameters()) sum += parameter.tensor.numel();
    return sum;
  }() : 0);
}

TEST_F(ShardedModelTest, OptimizerStatesGoOutAndComeBack) {
  ShardedModel engine(*model_, *dp_, {.policy = Zero2()});
  engine.backward(loss(engine), MicroBatchPlace::kLast);
  engine.update({.lr = 1e-2});
  const auto saved = engine.optimizer_states();
  const at::Tensor master = saved[0].master.clone(), moment = saved[0].exp_avg.clone();
  engine.backward(loss(engine), MicroBatchPlace::kLast);
  engine.update({.lr = 1e-2});
  engine.optimizer_states()[0].master.copy_(master);
  engine.optimizer_states()[0].exp_avg.copy_(moment);
  engine.load_finished(1);
  EXPECT_TRUE(engine.groups()[0]->flat_params().slice(0, 0, master.numel()).equal(master));
  EXPECT_EQ(engine.updates(), 1);
}

TEST_F(ShardedModelTest, AModelWithNothingToTrainIsRefused) {
  for (auto& parameter : model_->named_parameters()) parameter.tensor.set_requires_grad(false);
  EXPECT_THROW(ShardedModel(*model_, *dp_, {}), ConfigError);
}

TEST_F(ShardedModelTest, OneRankOfFourTrainsItsShardOnAFakeCommunicator) {
  const auto fake = comm::make_fake_communicator({.rank = 1, .size = 4});
  ShardedModel engine(*model_, *fake, {.policy = Zero2()});
  const auto& group = *engine.groups()[0];
  const at::Tensor before = group.flat_params().clone();
  engine.backward(loss(engine), MicroBatchPlace::kLast);
  engine.update({.lr = 1e-2});
  const auto own = group.owned_range();
  const at::Tensor changed = group.flat_params().ne(before);
  EXPECT_GT(changed.slice(0, own.begin, own.end).sum().item<int64_t>(), 0);
  EXPECT_EQ(changed.sum().item<int64_t>(), changed.slice(0, own.begin, own.end).sum().item<int64_t>());
  EXPECT_EQ(group.exp_avg().numel(), group.layout().shard_elements());
}

TEST_F(ShardedModelTest, RecomputeKeepsLessOfAForward) {
  const auto kept = [&](Recompute recompute, std::optional<std::vector<int64_t>> blocks = {}) {
    const auto model = tiny_qwen2();
    ShardedModel engine(*model, *dp_, {.recompute = recompute, .recompute_blocks = std::move(blocks)});
    const testing::MemoryMeter meter;
    const at::Tensor held = loss(engine);
    return static_cast<double>(meter.live_bytes());
  };
  const double all = kept(Recompute::kNone), partial = kept(Recompute::kPartial),
               least = kept(Recompute::kBlock);
  EXPECT_LT(partial, 0.85 * all) << "norms and the activation give their memory up";
  EXPECT_LT(least, partial);
  const double chosen = kept(Recompute::kBlock, std::vector<int64_t>{1});
  EXPECT_NEAR(chosen, (all + least) / 2, 0.1 * (all - least)) << "one of two blocks";
}

/// Says of each of its runs whether it was told that nobody reads its output.
struct Listening final : nn::Block {
  explicit Listening(nn::Block& block) : inner(block) {}
  at::Tensor forward(const at::Tensor& hidden_TD, const nn::PassContext& context) override {
    heard.push_back(context.output_is_unread);
    return inner.forward(hidden_TD, context);
  }
  nn::Block& inner;
  std::vector<bool> heard;
};

/// The tiny model with listening blocks.
struct ListeningModel final : nn::CausalLm {
  explicit ListeningModel(nn::CausalLm& model)
      : inner(model), first(*model.blocks()[0]), second(*model.blocks()[1]) {}
  void prepare(nn::PassContext& context) override { inner.prepare(context); }
  at::Tensor embed(const at::Tensor& tokens_T, const nn::PassContext& context) override {
    return inner.embed(tokens_T, context);
  }
  std::vector<nn::Block*> blocks() override { return {&first, &second}; }
  at::Tensor final_norm(const at::Tensor& hidden_MD, const nn::PassContext& context) override {
    return inner.final_norm(hidden_MD, context);
  }
  at::Tensor head_weight(const nn::PassContext& context) const override { return inner.head_weight(context); }
  std::vector<nn::NamedParameter> embed_parameters() override { return inner.embed_parameters(); }
  std::vector<nn::NamedParameter> block_parameters(int64_t index) override {
    return inner.block_parameters(index);
  }
  std::vector<nn::NamedParameter> head_parameters() override { return inner.head_parameters(); }
  nn::ShardPlan shard_plan() const override { return inner.shard_plan(); }
  int64_t hidden_size() const override { return inner.hidden_size(); }
  int64_t vocab_size() const override { return inner.vocab_size(); }

  nn::CausalLm& inner;
  Listening first, second;
};

TEST_F(ShardedModelTest, OnlyABlockThatRunsAgainIsToldThatNobodyReadsItsOutput) {
  ListeningModel model(*model_);
  ShardedModel engine(model, *dp_,
                      {.recompute = Recompute::kBlock, .recompute_blocks = std::vector<int64_t>{1}});
  {
    const at::NoGradGuard no_grad;
    loss(engine);
  }
  engine.backward(loss(engine), MicroBatchPlace::kLast);
  EXPECT_EQ(model.first.heard, (std::vector<bool>{false, false}));
  EXPECT_EQ(model.second.heard, (std::vector<bool>{false, false, true}));
}

/// Log-probabilities of some rows, and the gradients of all parameters.
std::vector<at::Tensor> rows_and_grads(nn::CausalLm& model, comm::Communicator& dp, const data::Batch& batch,
                                       const at::Tensor& rows_M, const ShardedModelOptions& options) {
  ShardedModel engine(model, dp, options);
  nn::PassContext context{.rows = batch.layout};
  const at::Tensor hidden_MD = engine.forward_read(batch.tokens_T, {.rows_M = rows_M}, context);
  const at::Tensor log_probs_M = engine.token_log_probs(hidden_MD, rows_M, context);
  engine.backward(log_probs_M.sum(), MicroBatchPlace::kLast);
  std::vector<at::Tensor> result{hidden_MD.detach(), log_probs_M.detach()};
  for (const auto& group : engine.groups()) result.push_back(group->reduced_grad().clone());
  return result;
}

TEST_F(ShardedModelTest, RowsThatAreReadAloneHaveTheNumbersAndGradientsOfAll) {
  const at::Tensor rows = at::tensor({0, 3, 3, 8}, at::kLong);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kPartial, Recompute::kBlock}) {
    std::vector<std::vector<at::Tensor>> found;
    for (const bool skips : {false, true}) {
      found.push_back(rows_and_grads(*tiny_qwen2(), *dp_, batch_, rows,
                                     {.recompute = recompute, .skip_unread_rows = skips}));
    }
    ASSERT_EQ(found[0].size(), found[1].size());
    for (size_t i = 0; i < found[0].size(); ++i) {
      testing::expect_close(found[1][i], found[0][i], {.absolute = 2e-6, .relative = 1e-5},
                            "tensor " + std::to_string(i));
    }
  }
}

TEST_F(ShardedModelTest, BlocksOfAnotherMakingAreReadRowByRowToo) {
  const at::Tensor rows = at::tensor({0, 3, 8}, at::kLong);
  const auto plain = tiny_qwen2(), wrapped = tiny_qwen2();
  ListeningModel listening(*wrapped);
  const auto wanted = rows_and_grads(*plain, *dp_, batch_, rows, {.skip_unread_rows = false});
  const auto found = rows_and_grads(listening, *dp_, batch_, rows, {});
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) testing::expect_equal(found[i], wanted[i]);
}

TEST_F(ShardedModelTest, WhereMostRowsAreReadOrNoneNoBitChanges) {
  const int64_t all = batch_.tokens_T.size(0);
  const at::Tensor most = at::arange(all - 1), none = at::empty({0}, at::kLong);
  ASSERT_GT(8 * (all - 1), 7 * all);
  for (const at::Tensor& rows : {most, none}) {
    const auto wanted = rows_and_grads(*tiny_qwen2(), *dp_, batch_, rows, {.skip_unread_rows = false});
    const auto found = rows_and_grads(*tiny_qwen2(), *dp_, batch_, rows, {});
    for (size_t i = 0; i < wanted.size(); ++i) testing::expect_equal(found[i], wanted[i]);
  }
}

TEST_F(ShardedModelTest, ATapeKeepsNothingOfRowsThatNobodyReads) {
  const auto kept = [&](bool skips) {
    const auto model = tiny_qwen2();
    ShardedModel engine(*model, *dp_, {.recompute = Recompute::kNone, .skip_unread_rows = skips});
    nn::PassContext context{.rows = batch_.layout};
    const testing::MemoryMeter meter;
    const at::Tensor held =
        engine.forward_read(batch_.tokens_T, {.rows_M = at::tensor({3}, at::kLong)}, context);
    return static_cast<double>(meter.live_bytes());
  };
  EXPECT_LT(kept(true), 0.8 * kept(false));
}

TEST_F(ShardedModelTest, ABlockThatDoesNotExistCannotBeRecomputed) {
  EXPECT_THROW(ShardedModel(*model_, *dp_, {.recompute_blocks = std::vector<int64_t>{2}}), ConfigError);
}

TEST_F(ShardedModelTest, AReferenceModelRunsAndDoesNotTrain) {
  for (auto& parameter : model_->named_parameters()) parameter.tensor.set_requires_grad(false);
  ShardedModel engine(*model_, *dp_, {.policy = Zero3(), .use = ModelUse::kReference});
  EXPECT_TRUE(std::isfinite(loss(engine).item<double>()));
  EXPECT_THROW(engine.backward(at::zeros({}), MicroBatchPlace::kLast), ConfigError);
  EXPECT_THROW(engine.update({}), ConfigError);
  const auto trainable = tiny_qwen2();
  EXPECT_THROW(ShardedModel(*trainable, *dp_, {.use = ModelUse::kReference}), ConfigError);
}

}  // namespace
}  // namespace apus::parallel
