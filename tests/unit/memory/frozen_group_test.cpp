#include "apus/memory/frozen_group.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::memory {
namespace {

using apus::testing::random_tensor;

/// bf16, fp32 and bytes (a packed quantised weight), one of them empty.
std::vector<GroupParameter> mixed() {
  return {{"w", random_tensor({33, 7}, 1, at::kBFloat16)},
          {"absmax", random_tensor({5}, 2)},
          {"none", random_tensor({0, 3}, 3)},
          {"packed", random_tensor({301}, 4).mul(40).to(at::kByte)}};
}

/// All ranks' shards put together, as an all_gather does.
at::Tensor gathered(const std::vector<std::unique_ptr<FrozenGroup>>& ranks) {
  std::vector<at::Tensor> shards;
  for (const auto& group : ranks) shards.push_back(group->buffer().shard());
  return at::cat(shards);
}

std::vector<std::unique_ptr<FrozenGroup>> split(int world,
                                                const std::function<std::vector<GroupParameter>()>& make,
                                                std::optional<at::ScalarType> dtype = {}) {
  std::vector<std::unique_ptr<FrozenGroup>> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.push_back(std::make_unique<FrozenGroup>(
        make(), FrozenGroupOptions{.place = {rank, world}, .compute_dtype = dtype}));
  }
  return ranks;
}

TEST(FrozenGroup, MixedDtypesComeBackWholeFromTheShardsOfEveryWorld) {
  // pitfalls.md rows 12, 13 and 17: one buffer took the first parameter's dtype, empty parameters broke
  for (const int world : {1, 2, 3, 4}) {
    const auto ranks = split(world, mixed);
    const auto wanted = mixed();
    ShardedBuffer& buffer = ranks[0]->buffer();
    buffer.begin_gather(gathered(ranks));
    buffer.finish_gather();
    for (size_t index = 0; index < wanted.size(); ++index) {
      const at::Tensor found = ranks[0]->parameters()[index].tensor;
      EXPECT_EQ(found.scalar_type(), wanted[index].tensor.scalar_type()) << wanted[index].name;
      EXPECT_TRUE(found.equal(wanted[index].tensor)) << wanted[index].name << " over " << world << " ranks";
    }
  }
}

TEST(FrozenGroup, AShardHasItsPartOfTheBytesAndNothingMore) {
  const auto ranks = split(4, mixed);
  const int64_t bytes = ranks[0]->buffer().bytes();
  EXPECT_EQ(ranks[3]->buffer().shard().numel() * 4, bytes);
  EXPECT_EQ(bytes % (4 * 1024), 0);
}

TEST(FrozenGroup, FloatingParametersTakeTheComputeDtypeAndBytesStay) {
  const auto ranks = split(2, mixed, at::kFloat);
  ShardedBuffer& buffer = ranks[1]->buffer();
  buffer.begin_gather(gathered(ranks));
  buffer.finish_gather();
  const auto& found = ranks[1]->parameters();
  EXPECT_EQ(found[0].tensor.scalar_type(), at::kFloat);
  EXPECT_TRUE(found[0].tensor.equal(mixed()[0].tensor.to(at::kFloat)));
  EXPECT_EQ(found[3].tensor.scalar_type(), at::kByte);
}

TEST(FrozenGroup, LeavesStayTheSameObjects) {
  const std::vector<GroupParameter> parameters = mixed();
  const auto* leaf = parameters[0].tensor.unsafeGetTensorImpl();
  const FrozenGroup group(parameters, {});
  EXPECT_EQ(group.parameters()[0].tensor.unsafeGetTensorImpl(), leaf);
  EXPECT_ANY_THROW(parameters[0].tensor.clone()) << "not gathered";
}

TEST(FrozenGroup, TrainableParametersAreRefused) {
  EXPECT_THROW(FrozenGroup({{"w", apus::testing::random_leaf({2}, 1)}}, {}), ShapeError);
  EXPECT_THROW(FrozenGroup({}, {}), ShapeError);
}

}  // namespace
}  // namespace apus::memory
