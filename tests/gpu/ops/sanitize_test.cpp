// Every kernel of ops once, forward and backward, in few rows: what compute-sanitizer's tools go through in
// seconds (tests/bench/device_round.sh sanitize). Blocks still take a second turn where they loop over rows.
#include <ATen/ops/alias.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>

#include "apus/ops/activation.h"
#include "apus/ops/cast.h"
#include "apus/ops/dropout.h"
#include "apus/ops/joint_linear.h"
#include "apus/ops/norm.h"
#include "apus/ops/projection.h"
#include "apus/ops/rotary.h"
#include "apus/ops/segment_sum.h"
#include "apus/ops/select_rows.h"
#include "apus/ops/token_log_probs.h"
#include "ops/joint_linear_cuda.h"
#include "ops/twins.h"
#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class SanitizeOnGpu : public GpuTest {};

constexpr int64_t kRows = 129;
constexpr at::ScalarType kDtypes[] = {at::kBFloat16, at::kFloat};

at::Tensor leaf(at::Tensor x) {
  return x.set_requires_grad(true);
}

at::Tensor counted(int64_t count) {
  return at::arange(count, at::TensorOptions(at::kCUDA).dtype(at::kLong));
}

// 64 columns are held by a warp, 896 by one too (bf16), 3584 by several.
TEST_F(SanitizeOnGpu, Norms) {
  for (const at::ScalarType dtype : kDtypes)
    for (const int64_t width : {64, 896, 3584}) {
      const Tensors inputs = {leaf(gpu_random({kRows, width}, 1, dtype)),
                              leaf(gpu_random({width}, 2, dtype))};
      const Tensors grads = {gpu_random({kRows, width}, 3, dtype), gpu_random({kRows, width}, 4, dtype)};
      expect_as_good_as_twin(
          [](const Tensors& in) {
            const ResidualRmsNorm both = rms_norm_residual(in[0], in[1], 1e-6);
            return Tensors{both.normed, both.passed};
          },
          [](const Tensors& in) {
            return Tensors{twin::rms_norm(in[0], in[1], 1e-6), at::alias(in[0])};
          },
          inputs, grads, std::to_string(width));
      const AddRmsNorm sum = add_rms_norm(inputs[0], grads[0], inputs[1], 1e-6);
      expect_equal(sum.sum.detach(), inputs[0].detach() + grads[0]);
    }
}

TEST_F(SanitizeOnGpu, Activations) {
  for (const at::ScalarType dtype : kDtypes)
    expect_as_good_as_twin([](const Tensors& in) { return Tensors{swiglu_packed(in[0])}; },
                           [](const Tensors& in) { return Tensors{twin::swiglu_packed(in[0])}; },
                           {leaf(gpu_random({kRows, 2 * 4864}, 1, dtype))},
                           {gpu_random({kRows, 4864}, 2, dtype)}, c10::toString(dtype));
}

void turn(const QkvHeads& heads, at::ScalarType dtype, bool normed) {
  const int64_t h = heads.head_dim;
  Tensors inputs = {leaf(gpu_random({kRows, heads.columns()}, 1, dtype)), gpu_random({kRows, h}, 2, dtype),
                    gpu_random({kRows, h}, 3, dtype)};
  if (normed) {
    inputs.push_back(leaf(gpu_random({h}, 4, dtype)));
    inputs.push_back(leaf(gpu_random({h}, 5, dtype)));
  }
  const auto norm_of = [](const Tensors& in) { return in.size() > 3 ? QkNorm{in[3], in[4]} : QkNorm{}; };
  const auto parts = [](const Qkv& made) { return Tensors{made.q_TNH, made.k_TKH, made.v_TKH}; };
  expect_as_good_as_twin(
      [=](const Tensors& in) { return parts(rotary_qkv(in[0], heads, in[1], in[2], norm_of(in))); },
      [=](const Tensors& in) { return parts(twin::rotary_qkv(in[0], heads, in[1], in[2], norm_of(in))); },
      inputs,
      {gpu_random({kRows, heads.heads, h}, 6, dtype), gpu_random({kRows, heads.kv_heads, h}, 7, dtype),
       gpu_random({kRows, heads.kv_heads, h}, 8, dtype)},
      normed ? "normed" : "plain");
}

TEST_F(SanitizeOnGpu, Rotations) {
  for (const at::ScalarType dtype : kDtypes)
    for (const bool normed : {false, true}) {
      turn({.heads = 14, .kv_heads = 2, .head_dim = 64}, dtype, normed);
      turn({.heads = 28, .kv_heads = 4, .head_dim = 128}, dtype, normed);
    }
}

// Tokens occur more than once and across segments' borders.
TEST_F(SanitizeOnGpu, Embeddings) {
  const at::Tensor tokens = counted(kRows).remainder(3);
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor table = leaf(gpu_random({7, 896}, 1, dtype)), dy = gpu_random({kRows, 896}, 2, dtype);
    const at::Tensor rows = embedding(tokens, table);
    expect_equal(rows.detach(), table.detach().index_select(0, tokens));
    torch::autograd::backward({rows}, {dy});
    const at::Tensor sums = at::full({7, 896}, 0.0, dy.options().dtype(at::kDouble));
    sums.index_add_(0, tokens, dy.to(at::kDouble));
    expect_close(table.grad(), sums, {.absolute = 1e-4, .relative = 1.0 / 256});
  }
}

TEST_F(SanitizeOnGpu, DropoutAndCasts) {
  auto rows = std::make_shared<SampleRows>();
  for (uint32_t row = 0; row < kRows; ++row) {
    rows->ordinals.push_back(row / 4);
    rows->sides.push_back(static_cast<uint8_t>(row % 2));
    rows->positions.push_back(row);
  }
  for (const at::ScalarType dtype : kDtypes)
    for (const int64_t width : {896, 1001}) {
      const Dropout options{.p = 0.3, .key = 5, .rows = rows};
      const at::Tensor x = gpu_random({kRows, width}, 1, dtype);
      expect_equal(dropout(x, options).cpu(), dropout(x.cpu(), options));
      expect_equal(cast(x, at::kFloat), x.to(at::kFloat));
    }
}

TEST_F(SanitizeOnGpu, SelectionsAndSums) {
  const at::Tensor places = counted(70) * 1.8;
  const at::Tensor index = places.to(at::kLong);
  for (const at::ScalarType dtype : kDtypes)
    for (const int64_t width : {896, 33}) {
      const at::Tensor x = leaf(gpu_random({kRows, width}, 1, dtype)), dy = gpu_random({70, width}, 2, dtype);
      const at::Tensor found = select_rows(x, index);
      expect_equal(found.detach(), x.detach().index_select(0, index));
      torch::autograd::backward({found}, {dy});
      EXPECT_LE(largest(x.grad().index_select(0, index) - dy), 0.0);
    }
  const at::Tensor values = leaf(gpu_random({kRows}, 3, at::kFloat));
  const at::Tensor sums = segment_sum(values, counted(kRows).div(20, "floor"), 7);
  EXPECT_NEAR(sums.sum().item<double>(), values.sum().item<double>(), 1e-3);
  torch::autograd::backward({sums}, {gpu_random({7}, 4, at::kFloat)});
}

// 600 rows of few columns and 140 of many: more than there are blocks, so that a next row is asked for.
TEST_F(SanitizeOnGpu, LogProbabilities) {
  for (const at::ScalarType dtype : kDtypes)
    for (const auto& [rows, vocab] : {std::pair<int64_t, int64_t>{600, 1001}, {140, 151936}})
      for (const bool known : {false, true}) {
        const at::Tensor hidden = leaf(gpu_random({rows, 16}, 1, dtype)),
                         weight = leaf(gpu_random({vocab, 16}, 2, dtype) * 0.1),
                         targets = counted(rows).mul(37).remainder(vocab),
                         scale = gpu_random({rows}, 3, at::kFloat);
        TokenLogProbsOptions options;
        if (known) options.row_scale_M = scale;
        const at::Tensor found =
            token_log_probs(hidden, weight.detach().set_requires_grad(true), targets, options);
        const at::Tensor logits = at::linear(hidden.detach(), weight.detach()).to(at::kFloat);
        const at::Tensor wanted = at::log_softmax(logits, 1).gather(1, targets.unsqueeze(1)).squeeze(1);
        expect_close(found.detach(), wanted, {.absolute = 2e-2, .relative = 1e-3});
        torch::autograd::backward({found}, {scale});
        EXPECT_FALSE(hidden.grad().isnan().any().item<bool>());
      }
}

// An adapter that is loaded into its home, and weights of their own with a bias.
TEST_F(SanitizeOnGpu, Projections) {
  for (const at::ScalarType dtype : kDtypes) {
    const auto home = std::make_shared<JointHome>(JointHomeOptions{
        .in_features = 64, .out_features = {64, 16}, .rank = 8, .dtype = dtype, .device = at::kCUDA});
    std::vector<JointPart> parts;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t out = i == 0 ? 64 : 16;
      home->weight(i).copy_(gpu_random({out, 64}, 10 + i, dtype));
      parts.push_back({.weight_OD = home->weight(i),
                       .a_RD = leaf(gpu_random({8, 64}, 20 + i, dtype)),
                       .b_OR = leaf(gpu_random({out, 8}, 30 + i, dtype)),
                       .scaling = 0.5});
    }
    at::Tensor x = empty_with_room(kRows, 64, home->input_room(), parts[0].weight_OD.options());
    x.copy_(gpu_random({kRows, 64}, 1, dtype));
    const at::Tensor y = joint_linear(leaf(x), parts, {.home = home}),
                     wanted = joint_linear_twin(x, parts, {});
    expect_close(y.detach(), wanted.detach(),
                 {.absolute = dtype == at::kFloat ? 1e-3 : 0.5, .relative = 2e-2});
    torch::autograd::backward({y}, {gpu_random({kRows, 80}, 2, dtype)});
    const JointPart trained{.weight_OD = leaf(gpu_random({72, 64}, 3, dtype)),
                            .bias_O = leaf(gpu_random({72}, 4, dtype))};
    const at::Tensor dy = gpu_random({kRows, 72}, 5, dtype);
    torch::autograd::backward({joint_linear(x, {trained})}, {dy});
    expect_close(trained.bias_O.grad().to(at::kFloat), dy.to(at::kFloat).sum(0),
                 {.absolute = 0.2, .relative = 1e-2});
  }
}

}  // namespace
}  // namespace apus::ops
