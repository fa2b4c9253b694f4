#include "train/memory_plan_fused.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/train/support/plan_models.h"

namespace apus::train {
namespace {

using namespace apus::testing;
using parallel::Recompute;

constexpr int64_t kTokens = 1000, kHidden = 64, kFfn = 160, kQuery = 64, kKey = 32, kRank = 8;
constexpr int64_t kWorkspace = int64_t{32} << 20;

ParameterShape matrix(const std::string& name, int64_t out, int64_t in, bool trainable = false) {
  return {.name = name, .sizes = {out, in}, .dtype = at::kBFloat16, .trainable = trainable};
}

/// A gated decoder block of two heads of 32, one for keys; trained, or frozen with adapters of a rank (0 =
/// none).
UnitShape block(bool full, int64_t rank) {
  UnitShape unit{.name = "block 0"};
  const auto add = [&](const std::string& module, int64_t out, int64_t in) {
    const std::string path = "model.layers.0." + module;
    unit.parameters.push_back(matrix(path + ".weight", out, in, full));
    if (rank == 0) return;
    unit.parameters.push_back(matrix(path + ".lora_A.default.weight", rank, in, true));
    unit.parameters.push_back(matrix(path + ".lora_B.default.weight", out, rank, true));
  };
  add("self_attn.q_proj", kQuery, kHidden);
  add("self_attn.k_proj", kKey, kHidden);
  add("self_attn.v_proj", kKey, kHidden);
  add("self_attn.o_proj", kHidden, kQuery);
  add("mlp.gate_proj", kFfn, kHidden);
  add("mlp.up_proj", kFfn, kHidden);
  add("mlp.down_proj", kHidden, kFfn);
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    unit.parameters.push_back({.name = std::string("model.layers.0.") + norm + ".weight",
                               .sizes = {kHidden},
                               .dtype = at::kBFloat16,
                               .trainable = full});
  return unit;
}

PassSizes pass(bool has_homes = true) {
  return {.batch = {.sequences = 2, .tokens = kTokens, .targets = 500, .longest = 500, .packed = true},
          .dtype = at::kBFloat16,
          .adapter_dtype = at::kBFloat16,
          .hidden_size = kHidden,
          .attention_heads = 2,
          .input_needs_grad = true,
          .has_homes = has_homes};
}

TEST(MemoryPlanFused, AdaptersKeepTheirInputsWithRoom) {
  const BlockCost cost = fused_block_cost(block(false, kRank), pass(), Recompute::kNone);
  const int64_t norms = 2 * 4 * kTokens + 2 * kTokens * (kHidden + 3 * kRank) +
                        2 * kTokens * (2 * kHidden + 2 * kRank);  // the sum, too
  const int64_t attention = 2 * kTokens * (kQuery + 2 * kKey + kQuery + kRank) + 4 * kTokens * 2;
  const int64_t mlp = 2 * kTokens * (2 * kFfn + kFfn + kRank);
  EXPECT_EQ(cost.kept, norms + attention + mlp);
  EXPECT_EQ(cost.gradients, 0) << "they are written where they are summed";
  EXPECT_TRUE(cost.trains);
}

TEST(MemoryPlanFused, TheLastBlockHasTheRowsThatAreReadBehindItsAttention) {
  PassSizes last = pass();
  last.reads_few = true;
  const int64_t read = last.batch.targets;
  const int64_t norms =
      4 * (kTokens + read) + 2 * kTokens * (kHidden + 3 * kRank) + 2 * read * (2 * kHidden + 2 * kRank);
  const int64_t attention = 2 * kTokens * (kQuery + 2 * kKey + kQuery) + 4 * kTokens * 2 +
                            2 * read * (kQuery + kRank);  // and o's input, a copy
  const int64_t mlp = 2 * read * (2 * kFfn + kFfn + kRank);
  const BlockCost cost = fused_block_cost(block(false, kRank), last, Recompute::kNone);
  EXPECT_EQ(cost.kept, norms + attention + mlp);
  const BlockCost whole = fused_block_cost(block(false, kRank), pass(), Recompute::kNone);
  EXPECT_LT(cost.plain, whole.plain);
  EXPECT_LT(cost.backward[0].activations, whole.backward[0].activations);
}

TEST(MemoryPlanFused, PartialRecomputeKeepsNoProductsOfNormsAndSwiglu) {
  const int64_t whole = fused_block_cost(block(false, kRank), pass(), Recompute::kNone).kept;
  const int64_t partial = fused_block_cost(block(false, kRank), pass(), Recompute::kPartial).kept;
  EXPECT_EQ(whole - partial, 2 * kTokens * (2 * kHidden + 5 * kRank + kFfn + kRank));
}

TEST(MemoryPlanFused, WithoutAHomeInnerRowsLieApart) {
  const BlockCost home = fused_block_cost(block(false, kRank), pass(), Recompute::kNone);
  const BlockCost apart = fused_block_cost(block(false, kRank), pass(false), Recompute::kNone);
  EXPECT_EQ(home.kept, apart.kept);
  EXPECT_GT(home.plain, apart.plain) << "rooms are there in passes without adapters, too";
}

TEST(MemoryPlanFused, AFrozenBlockBelowAllAdaptersKeepsNothingButScales) {
  PassSizes below = pass();
  below.input_needs_grad = false;
  const BlockCost cost = fused_block_cost(block(false, 0), below, Recompute::kNone);
  EXPECT_FALSE(cost.trains);
  EXPECT_LE(cost.kept, 2 * 4 * kTokens);
}

TEST(MemoryPlanFused, TheFullestMomentsAreSwigluAndAttention) {
  const BlockCost cost = fused_block_cost(block(true, 0), pass(), Recompute::kNone);
  ASSERT_EQ(cost.backward.size(), 2u);
  // Gate and up, the gradient of their product, and theirs, in place of the product that was kept.
  EXPECT_EQ(cost.backward[0].activations - kWorkspace, cost.kept + 2 * kTokens * 2 * kFfn);
  // cuDNN's workspace follows the class of rows: 12 bytes for each query element, at least of the rows there
  // are.
  EXPECT_GE(cost.backward[1].activations, 12 * kTokens * kQuery);
  PassSizes repeatable = pass();
  repeatable.deterministic = true;
  EXPECT_GT(fused_block_cost(block(true, 0), repeatable, Recompute::kNone).backward[1].activations,
            cost.backward[1].activations);
}

TEST(MemoryPlanFused, HomesTakeTheirRoomsAndCorners) {
  const auto room = [](int64_t out, int64_t in, int64_t inner) {
    return (out + inner) * (in + inner) - out * in;
  };
  EXPECT_EQ(home_elements(block(false, kRank)),
            room(kQuery + 2 * kKey, kHidden, 3 * kRank) + room(kHidden, kQuery, kRank) +
                room(2 * kFfn, kHidden, 2 * kRank) + room(kHidden, kFfn, kRank));
  EXPECT_EQ(home_elements(block(false, 12)), home_elements(block(false, 16))) << "rooms are multiples of 8";
  EXPECT_EQ(home_elements(block(false, 0)), 0);
  EXPECT_EQ(home_elements(block(true, 0)), 0) << "trained weights have no home";
  EXPECT_FALSE(is_fused_decoder({.name = "x", .parameters = {matrix("a.q_proj.weight", 8, 8)}}));
}

TEST(MemoryPlanFused, TheHeadHoldsOneChunkOfLogitsInItsDtype) {
  constexpr int64_t kVocab = 152064;
  const UnitShape head{.name = "head", .parameters = {matrix("lm_head.weight", kVocab, kHidden)}};
  const HeadCost small = fused_head_cost(head, pass(), kVocab, 0);
  EXPECT_EQ(small.recording - small.kept - 2 * 500 * kHidden - kWorkspace, 2 * 500 * kVocab);
  PassSizes many = pass();
  many.batch.targets = 100'000;
  const HeadCost large = fused_head_cost(head, many, kVocab, 0);
  EXPECT_LE(large.recording - large.kept, int64_t{3} << 30) << "not all rows at once";
  EXPECT_EQ(fused_head_cost(head, many, kVocab, 1024).plain - 2 * many.batch.targets * 2 * kHidden -
                kWorkspace - 8 * many.batch.targets,
            2 * 1024 * kVocab);
}

TEST(MemoryPlanFused, ATrainedHeadMakesItsLogitsAgainWhereFactorsComeLate) {
  UnitShape head{.name = "head", .parameters = {matrix("lm_head.weight", 1024, kHidden, true)}};
  PassSizes sft = pass(), dpo = pass();
  sft.scale_known = true;
  EXPECT_GT(fused_head_cost(head, dpo, 1024, 0).kept, fused_head_cost(head, sft, 1024, 0).kept);
  EXPECT_GT(fused_head_cost(head, dpo, 1024, 0).backward, fused_head_cost(head, sft, 1024, 0).backward);
}

/// Issue 7's main job: 14B, rank 64, one pair of 4,096 + 4,096, on four cards under ZeRO-2.
TEST(MemoryPlanFused, TheMainJobFitsIntoFortyGigabytes) {
  PlanInput job = lora_plan(qwen_14b(), 64, 4, parallel::Zero2());
  job.engine.recompute = Recompute::kBlock;
  job.engine.head_chunk_tokens = 0;
  job.rows = RowProfile::of_length(4096, 2);
  job.rows.packed = true;
  job.accumulation = 16;
  job.reference = PlanReference::kSameModel;
  job.model.attention_heads = 40;
  job.card_bytes = int64_t{38} << 30;
  const MemoryPlan plan = plan_memory(job);
  EXPECT_LT(plan.tensor_bytes(), int64_t{37} << 30);
  EXPECT_GT(plan.tensor_bytes(), int64_t{29} << 30) << "the base alone has 27.5 GiB";
  EXPECT_TRUE(plan.fits(int64_t{40} << 30));
  PlanInput small = job;
  small.card_bytes = int64_t{24} << 30;
  EXPECT_LT(plan_memory(small).tensor_bytes(), plan.tensor_bytes()) << "the head takes smaller chunks";
}

}  // namespace
}  // namespace apus::train
