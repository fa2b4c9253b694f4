// Weight gradients of bf16 products reach an fp32 accumulator unrounded: operands are small integers over
// powers of two, so that every sum is exact in fp32, in any order, and is no bf16 number.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apus/comm/fake_communicator.h"
#include "apus/ops/joint_linear.h"
#include "apus/parallel/sharded_units.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;

const at::Device kGpu(at::kCUDA, 0);
constexpr int64_t kIn = 64, kRank = 8, kRows = 129;
constexpr double kScaling = 0.5;

class Fp32Gradients : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

/// Who adds a micro-batch's gradient into the accumulator.
enum class Way {
  kTarget,  ///< the product itself, at GradSink::target
  kTape,    ///< the engine, from the tape: a micro-batch's gradient has the parameter's dtype
};

struct Case {
  std::string name;
  std::vector<int64_t> outs;
  bool adapters = true;
  bool home = false;
  ops::JointLayout layout = ops::JointLayout::kFused;
};

std::vector<Case> cases() {
  return {
      {.name = "LoRA in a fused home", .outs = {64, 32}, .home = true},
      {.name = "LoRA in a home beside", .outs = {64, 64}, .home = true, .layout = ops::JointLayout::kBeside},
      {.name = "LoRA of one part in a home", .outs = {64}, .home = true},
      {.name = "LoRA without a home", .outs = {64, 32}},
      {.name = "full weights", .outs = {64, 32}, .adapters = false},
      {.name = "one full weight", .outs = {64}, .adapters = false}};
}

/// Multiples of 1 / steps from -1 to 1.
at::Tensor coarse(at::IntArrayRef shape, uint64_t seed, double steps = 8.0) {
  return (random_tensor(shape, seed) * (0.5 * steps)).round().clamp(-steps, steps) / steps;
}

/// Rows and output gradients of a micro-batch. Under the tape a micro-batch's gradient must itself be a bf16
/// number, so one row alone is not zero, and the second micro-batch is 2^9 times smaller.
struct MicroBatch {
  MicroBatch(const Case& the, Way way, uint64_t index) {
    int64_t out = 0;
    for (const int64_t columns : the.outs) out += columns;
    x_TD = coarse({kRows, kIn}, 10 + index);
    dy_TO = coarse({kRows, out}, 20 + index, way == Way::kTarget ? 64.0 : 8.0);
    if (way == Way::kTarget) return;
    dy_TO.narrow(0, 1, kRows - 1).zero_();
    if (index == 1) dy_TO = dy_TO / 512.0;
  }

  at::Tensor x_TD, dy_TO;
};

/// Weights that hand features on: t and u are columns of x and dy, so nothing is rounded on the way.
at::Tensor picking(int64_t rows, int64_t columns) {
  at::Tensor values = at::empty({rows, columns}, at::kFloat).zero_();
  for (int64_t i = 0; i < std::min(rows, columns); ++i) values[i][i].fill_(1.0);
  return values;
}

using Gradients = std::map<std::string, at::Tensor>;

/// Of both micro-batches, in fp64 on the CPU.
Gradients exact(const Case& the, const std::vector<MicroBatch>& batches) {
  Gradients sums;
  for (const MicroBatch& batch : batches) {
    const at::Tensor x_TD = batch.x_TD.to(at::kDouble);
    int64_t first = 0;
    for (size_t part = 0; part < the.outs.size(); ++part) {
      const at::Tensor dy_TO = batch.dy_TO.narrow(1, first, the.outs[part]).to(at::kDouble);
      first += the.outs[part];
      const auto add = [&, part](const std::string& name, const at::Tensor& grad) {
        at::Tensor& sum = sums[name + std::to_string(part)];
        sum = sum.defined() ? sum + grad : grad;
      };
      if (the.adapters) {
        const at::Tensor a_RD = picking(kRank, kIn).to(at::kDouble);
        const at::Tensor b_OR = picking(the.outs[part], kRank).to(at::kDouble);
        add("a", (dy_TO.matmul(b_OR) * kScaling).t().matmul(x_TD));
        add("b", dy_TO.t().matmul(x_TD.matmul(a_RD.t())) * kScaling);
      } else {
        add("weight", dy_TO.t().matmul(x_TD));
        add("bias", dy_TO.sum(0));
      }
    }
  }
  return sums;
}

/// The parts' operands: trainable leaves on the CPU, for the engine to take, and frozen weights on the GPU.
struct Operands {
  explicit Operands(const Case& the) {
    if (the.home)
      home = std::make_shared<ops::JointHome>(ops::JointHomeOptions{.in_features = kIn,
                                                                    .out_features = the.outs,
                                                                    .rank = kRank,
                                                                    .layout = the.layout,
                                                                    .dtype = at::kBFloat16,
                                                                    .device = kGpu});
    for (size_t part = 0; part < the.outs.size(); ++part) {
      const at::Tensor weight = coarse({the.outs[part], kIn}, 40 + part);
      const auto leaf = [&](const std::string& name, const at::Tensor& values) {
        leaves.push_back({name + std::to_string(part), values.detach().set_requires_grad(true)});
        return leaves.back().tensor;
      };
      ops::JointPart& made = parts.emplace_back();
      if (!the.adapters) {
        made.weight_OD = leaf("weight", weight);
        made.bias_O = leaf("bias", coarse({the.outs[part]}, 50 + part));
        continue;
      }
      made.weight_OD = weight.to(kGpu, at::kBFloat16);
      if (home) {
        home->weight(part).copy_(made.weight_OD);
        made.weight_OD = home->weight(part);
      }
      made.a_RD = leaf("a", picking(kRank, kIn));
      made.b_OR = leaf("b", picking(the.outs[part], kRank));
      made.scaling = kScaling;
    }
  }

  std::shared_ptr<ops::JointHome> home;
  std::vector<ops::JointPart> parts;
  std::vector<nn::NamedParameter> leaves;
};

/// The accumulators after both micro-batches.
Gradients accumulated(const Case& the, Way way, const ShardPolicy& policy,
                      const std::vector<MicroBatch>& batches) {
  const Operands operands(the);
  const auto dp = comm::make_fake_communicator({});
  ShardedModelOptions options{.policy = policy, .compute_dtype = at::kBFloat16, .device = kGpu};
  options.initial_values = InitialValues::kOwn;
  ModelUnits model;
  model.units.push_back({"projection", operands.leaves});
  ShardedUnits engine(std::move(model), DataParallel::one_axis(*dp), options);
  for (size_t index = 0; index < batches.size(); ++index) {
    const at::Tensor x_TD = batches[index].x_TD.to(kGpu, at::kBFloat16);
    const at::Tensor y_TO = engine.run(0, x_TD, [&](const at::Tensor& in) {
      return ops::joint_linear(
          in, operands.parts,
          {.home = operands.home, .gradients = way == Way::kTarget ? &engine.grad_sink() : nullptr});
    });
    EXPECT_EQ(y_TO.scalar_type(), at::kBFloat16) << the.name;
    const bool last = index + 1 == batches.size();
    engine.backward((y_TO.to(at::kFloat) * batches[index].dy_TO.to(kGpu)).sum(),
                    last ? MicroBatchPlace::kLast : MicroBatchPlace::kNotLast);
  }
  Gradients found;
  for (const auto& group : engine.groups()) {
    const at::Tensor flat_G = group->reduced_grad();
    EXPECT_EQ(flat_G.scalar_type(), at::kFloat) << the.name;
    for (size_t index = 0; index < group->parameters().size(); ++index) {
      const memory::ElementRange range = group->layout().range_of(static_cast<int64_t>(index));
      const memory::GroupParameter& parameter = group->parameters()[index];
      found[parameter.name] = flat_G.slice(0, range.begin, range.end).view(parameter.tensor.sizes()).cpu();
    }
  }
  return found;
}

void expect_exact(const Case& the, Way way) {
  const std::vector<MicroBatch> batches = {{the, way, 0}, {the, way, 1}};
  const Gradients wanted = exact(the, batches);
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2())}) {
    const std::string what = the.name + (way == Way::kTape ? " by the tape, " : ", ") + policy.name;
    const Gradients found = accumulated(the, way, policy, batches);
    ASSERT_EQ(found.size(), wanted.size()) << what;
    for (const auto& [name, sum] : wanted) {
      ASSERT_TRUE(found.contains(name)) << what << ": " << name;
      EXPECT_TRUE(sum.to(at::kFloat).to(at::kDouble).equal(sum)) << what << ": exact in fp32, " << name;
      EXPECT_FALSE(sum.to(at::kBFloat16).to(at::kDouble).equal(sum)) << what << ": no bf16, " << name;
      EXPECT_TRUE(found.at(name).to(at::kDouble).equal(sum))
          << what << ": " << name << " is off by " << largest(found.at(name).to(at::kDouble) - sum);
    }
  }
}

TEST_F(Fp32Gradients, OfBf16ProductsAreNeverRoundedWhereProductsAddThem_Pitfall37) {
  for (const Case& the : cases()) expect_exact(the, Way::kTarget);
}

TEST_F(Fp32Gradients, OfBf16ProductsAddUpInFp32BehindTheTape_Pitfall37) {
  for (const Case& the : cases()) expect_exact(the, Way::kTape);
}

}  // namespace
}  // namespace apus::parallel
