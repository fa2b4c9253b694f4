// Tensors of more than 2^31 elements through each kernel: rows in front, where an index passes 2^31 and at
// the end are compared with the twin of these rows alone. Gradients are zero in all other rows, so that
// weights' gradients are those of the compared rows, too.
#include <ATen/ops/alias.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include "apus/ops/activation.h"
#include "apus/ops/cast.h"
#include "apus/ops/dropout.h"
#include "apus/ops/joint_linear.h"
#include "apus/ops/norm.h"
#include "apus/ops/projection.h"
#include "apus/ops/rotary.h"
#include "apus/ops/select_rows.h"
#include "apus/ops/token_log_probs.h"
#include "ops/joint_linear_cuda.h"
#include "ops/twins.h"
#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

constexpr int64_t kBorder = int64_t{1} << 31;
constexpr int64_t kWindow = 8;

/// Gives the memory back to the card after each test.
class LargeIndexOnGpu : public GpuTest {
 protected:
  void TearDown() override { c10::cuda::CUDACachingAllocator::emptyCache(); }

  static bool has_room_for(double gib) {
    size_t free = 0, total = 0;
    c10::cuda::CUDACachingAllocator::emptyCache();
    return cudaMemGetInfo(&free, &total) == cudaSuccess && static_cast<double>(free) > gib * (1 << 30);
  }
};

/// Rows of `width` whose elements are a little more than 2^31.
int64_t rows_beyond(int64_t width) {
  return kBorder / width + 129;
}

/// First rows of the windows that are compared.
std::vector<int64_t> windows(int64_t rows, int64_t width) {
  return {0, kBorder / width - kWindow / 2, rows - kWindow};
}

/// The windows' rows of tensors that have `rows`; other tensors whole.
Tensors rows_of(const Tensors& all, int64_t rows, const std::vector<int64_t>& starts) {
  Tensors found;
  for (const at::Tensor& x : all) {
    if (!x.defined() || x.dim() == 0 || x.size(0) != rows) {
      found.push_back(x);
      continue;
    }
    Tensors parts;
    for (const int64_t start : starts) parts.push_back(x.detach().narrow(0, start, kWindow));
    found.push_back(at::cat(parts).set_requires_grad(x.requires_grad()));
  }
  return found;
}

/// Standard normal values, made in their dtype.
at::Tensor large_random(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype) {
  at::Generator generator = at::cuda::detail::createCUDAGenerator();
  generator.set_current_seed(seed);
  return at::empty(shape, at::TensorOptions(dtype).device(at::kCUDA)).normal_(0.0, 1.0, generator);
}

/// Zero but in the windows.
at::Tensor window_gradient(at::IntArrayRef shape, const std::vector<int64_t>& starts, uint64_t seed,
                           at::ScalarType dtype) {
  const at::Tensor grad = at::zeros(shape, at::TensorOptions(dtype).device(at::kCUDA));
  std::vector<int64_t> part = shape.vec();
  part[0] = kWindow;
  for (const int64_t start : starts) grad.narrow(0, start, kWindow).copy_(gpu_random(part, seed++, dtype));
  return grad;
}

at::Tensor leaf(at::Tensor x) {
  return x.set_requires_grad(true);
}

/// As expect_as_good, by the operands' dtype: log-probabilities are fp32 in any case.
void expect_near(const at::Tensor& found, const at::Tensor& plain, const at::Tensor& exact,
                 at::ScalarType dtype, const std::string& what) {
  ASSERT_EQ(found.sizes(), exact.sizes()) << what;
  const double size = rms(exact), error = rms(found.to(at::kDouble) - exact.to(at::kDouble));
  double allowed = 1e-5 * size + 1e-9;
  if (dtype != at::kFloat) {
    allowed += 1.5 * rms(plain.to(at::kDouble) - exact.to(at::kDouble));
    if (found.numel() < 1024) allowed += size / 512;
  }
  EXPECT_LE(error, allowed) << what << ": rms of the exact result " << size;
}

void expect_rows_as_good(const TapedOp& fused, const TapedOp& twin, const Tensors& inputs,
                         const Tensors& grads, int64_t rows, const std::vector<int64_t>& starts) {
  const Tensors found = rows_of(outputs_and_gradients(fused, inputs, grads), rows, starts);
  const Tensors few = rows_of(inputs, rows, starts), few_grads = rows_of(grads, rows, starts);
  const Tensors plain = outputs_and_gradients(twin, few, few_grads);
  const Tensors exact = outputs_and_gradients(twin, widened(few), widened(few_grads));
  ASSERT_EQ(found.size(), exact.size());
  for (size_t i = 0; i < found.size(); ++i)
    expect_near(found[i], plain[i], exact[i], inputs[0].scalar_type(), "result " + std::to_string(i));
}

TEST_F(LargeIndexOnGpu, NormsReachRowsBeyond31Bits) {
  if (!has_room_for(50)) GTEST_SKIP() << "too little free memory";
  constexpr int64_t kWidth = 3584;
  const int64_t rows = rows_beyond(kWidth);
  const auto starts = windows(rows, kWidth);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    SCOPED_TRACE(c10::toString(dtype));
    const Tensors inputs = {leaf(large_random({rows, kWidth}, 1, dtype)),
                            leaf(gpu_random({kWidth}, 2, dtype))};
    const Tensors grads = {window_gradient({rows, kWidth}, starts, 3, dtype),
                           window_gradient({rows, kWidth}, starts, 9, dtype)};
    expect_rows_as_good(
        [](const Tensors& in) {
          const ResidualRmsNorm both = rms_norm_residual(in[0], in[1], 1e-6);
          return Tensors{both.normed, both.passed};
        },
        [](const Tensors& in) {
          return Tensors{twin::rms_norm(in[0], in[1], 1e-6), at::alias(in[0])};
        },
        inputs, grads, rows, starts);
  }
}

TEST_F(LargeIndexOnGpu, ActivationsReachRowsBeyond31Bits) {
  if (!has_room_for(50)) GTEST_SKIP() << "too little free memory";
  constexpr int64_t kWidth = 18944;
  const int64_t rows = rows_beyond(2 * kWidth);
  const auto starts = windows(rows, 2 * kWidth);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    SCOPED_TRACE(c10::toString(dtype));
    expect_rows_as_good([](const Tensors& in) { return Tensors{swiglu_packed(in[0])}; },
                        [](const Tensors& in) { return Tensors{twin::swiglu_packed(in[0])}; },
                        {leaf(large_random({rows, 2 * kWidth}, 1, dtype))},
                        {window_gradient({rows, kWidth}, starts, 2, dtype)}, rows, starts);
  }
}

/// Heads of a fused projection: q alone has more than 2^31 elements.
void expect_turned(const QkvHeads& heads, at::ScalarType dtype, bool normed) {
  const int64_t rows = rows_beyond(heads.heads * heads.head_dim), h = heads.head_dim;
  const auto starts = windows(rows, heads.heads * h);
  Tensors inputs = {leaf(large_random({rows, heads.columns()}, 1, dtype)), large_random({rows, h}, 2, dtype),
                    large_random({rows, h}, 3, dtype)};
  if (normed) {
    inputs.push_back(leaf(gpu_random({h}, 4, dtype)));
    inputs.push_back(leaf(gpu_random({h}, 5, dtype)));
  }
  const auto norm_of = [normed](const Tensors& in) { return normed ? QkNorm{in[3], in[4]} : QkNorm{}; };
  expect_rows_as_good(
      [=](const Tensors& in) {
        const Qkv made = rotary_qkv(in[0], heads, in[1], in[2], norm_of(in));
        return Tensors{made.q_TNH, made.k_TKH, made.v_TKH};
      },
      [=](const Tensors& in) {
        const Qkv made = twin::rotary_qkv(in[0], heads, in[1], in[2], norm_of(in));
        return Tensors{made.q_TNH, made.k_TKH, made.v_TKH};
      },
      inputs,
      {window_gradient({rows, heads.heads, h}, starts, 6, dtype),
       window_gradient({rows, heads.kv_heads, h}, starts, 16, dtype),
       window_gradient({rows, heads.kv_heads, h}, starts, 26, dtype)},
      rows, starts);
}

TEST_F(LargeIndexOnGpu, RotationsReachRowsBeyond31Bits) {
  if (!has_room_for(60)) GTEST_SKIP() << "too little free memory";
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    SCOPED_TRACE(c10::toString(dtype));
    expect_turned({.heads = 28, .kv_heads = 4, .head_dim = 128}, dtype, false);
  }
}

TEST_F(LargeIndexOnGpu, NormedRotationsReachRowsBeyond31Bits) {
  if (!has_room_for(60)) GTEST_SKIP() << "too little free memory";
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    SCOPED_TRACE(c10::toString(dtype));
    expect_turned({.heads = 32, .kv_heads = 8, .head_dim = 128}, dtype, true);
  }
}

// Row r reads token V - 1 - r, so that large rows and large tokens both occur, and each token once.
TEST_F(LargeIndexOnGpu, EmbeddingsReachRowsAndTokensBeyond31Bits) {
  if (!has_room_for(50)) GTEST_SKIP() << "too little free memory";
  constexpr int64_t kWidth = 3584;
  const int64_t rows = rows_beyond(kWidth);
  const auto starts = windows(rows, kWidth);
  const at::Tensor tokens =
      at::arange(rows - 1, -1, -1, at::TensorOptions(at::kCUDA).dtype(at::kLong)).contiguous();
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    SCOPED_TRACE(c10::toString(dtype));
    const at::Tensor table = leaf(large_random({rows, kWidth}, 1, dtype));
    const at::Tensor found = embedding(tokens, table);
    const at::Tensor dy = large_random({rows, kWidth}, 2, dtype);
    torch::autograd::backward({found}, {dy});
    for (const int64_t start : starts) {
      const int64_t mirrored = rows - start - kWindow;
      const auto at_window = [&](const at::Tensor& x, int64_t first) {
        return x.detach().narrow(0, first, kWindow);
      };
      EXPECT_TRUE(at_window(found, start).equal(at_window(table, mirrored).flip(0))) << start;
      EXPECT_TRUE(at_window(table.grad(), mirrored).equal(at_window(dy, start).flip(0))) << start;
    }
  }
}

TEST_F(LargeIndexOnGpu, LogProbabilitiesReachLogitsBeyond31Bits) {
  if (!has_room_for(40)) GTEST_SKIP() << "too little free memory";
  constexpr int64_t kVocab = 152064, kWidth = 64;
  const int64_t rows = rows_beyond(kVocab);
  const auto starts = windows(rows, kVocab);
  const at::Tensor targets =
      at::arange(rows, at::TensorOptions(at::kCUDA).dtype(at::kLong)).mul(37).add(11).remainder(kVocab);
  const TapedOp plain = [](const Tensors& in) {
    const at::Tensor logits = at::linear(in[0], in[1]).to(at::kFloat);
    return Tensors{at::log_softmax(logits, 1).gather(1, in[2].unsqueeze(1)).squeeze(1)};
  };
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
    for (const bool trained : {false, true}) {
      SCOPED_TRACE(c10::toString(dtype));
      const at::Tensor scale = window_gradient({rows}, starts, 4, at::kFloat);
      const at::Tensor weight = gpu_random({kVocab, kWidth}, 2, dtype);
      const TapedOp fused = [rows, trained](const Tensors& in) {
        TokenLogProbsOptions options{.chunk_tokens = rows};
        if (trained) options.row_scale_M = in[3];
        return Tensors{token_log_probs(in[0], in[1], in[2], options)};
      };
      expect_rows_as_good(
          fused, plain,
          {leaf(gpu_random({rows, kWidth}, 1, dtype)), trained ? leaf(weight) : weight, targets, scale},
          {scale}, rows, starts);
    }
}

TEST_F(LargeIndexOnGpu, ProjectionsReachRowsBeyond31Bits) {
  if (!has_room_for(50)) GTEST_SKIP() << "too little free memory";
  constexpr int64_t kIn = 64, kOut = 3584;
  const int64_t rows = rows_beyond(kOut);
  const auto starts = windows(rows, kOut);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    SCOPED_TRACE(c10::toString(dtype));
    const auto part = [](const Tensors& in) { return JointPart{.weight_OD = in[1], .bias_O = in[2]}; };
    expect_rows_as_good([=](const Tensors& in) { return Tensors{joint_linear(in[0], {part(in)})}; },
                        [=](const Tensors& in) { return Tensors{joint_linear_twin(in[0], {part(in)}, {})}; },
                        {leaf(large_random({rows, kIn}, 1, dtype)), leaf(gpu_random({kOut, kIn}, 2, dtype)),
                         leaf(gpu_random({kOut}, 3, dtype))},
                        {window_gradient({rows, kOut}, starts, 4, dtype)}, rows, starts);
  }
}

TEST_F(LargeIndexOnGpu, SelectedRowsLieBeyond31Bits) {
  if (!has_room_for(30)) GTEST_SKIP() << "too little free memory";
  constexpr int64_t kWidth = 3584;
  const int64_t rows = rows_beyond(kWidth);
  const at::Tensor x = leaf(large_random({rows, kWidth}, 1, at::kBFloat16));
  Tensors places;
  for (const int64_t start : windows(rows, kWidth))
    places.push_back(at::arange(start, start + kWindow, at::TensorOptions(at::kCUDA).dtype(at::kLong)));
  const at::Tensor index = at::cat(places);
  const at::Tensor found = select_rows(x, index), dy = gpu_random({index.size(0), kWidth}, 2);
  EXPECT_TRUE(found.detach().equal(x.detach().index_select(0, index)));
  torch::autograd::backward({found}, {dy});
  EXPECT_TRUE(x.grad().index_select(0, index).equal(dy));
  EXPECT_TRUE(x.grad().narrow(0, rows - 2 * kWindow, kWindow).eq(0).all().item<bool>());
}

TEST_F(LargeIndexOnGpu, DropoutAndCastsReachRowsBeyond31Bits) {
  if (!has_room_for(40)) GTEST_SKIP() << "too little free memory";
  constexpr int64_t kWidth = 3584;
  const int64_t rows = rows_beyond(kWidth);
  const at::Tensor x = large_random({rows, kWidth}, 1, at::kBFloat16);
  const auto coordinates = [](int64_t first, int64_t count) {
    auto samples = std::make_shared<SampleRows>();
    for (int64_t row = first; row < first + count; ++row) {
      samples->ordinals.push_back(static_cast<uint32_t>(row / 1000));
      samples->sides.push_back(0);
      samples->positions.push_back(static_cast<uint32_t>(row % 1000));
    }
    return samples;
  };
  const at::Tensor dropped = dropout(x, {.p = 0.3, .key = 7, .rows = coordinates(0, rows)});
  const at::Tensor wide = cast(x, at::kFloat);
  for (const int64_t start : windows(rows, kWidth)) {
    const at::Tensor few = x.narrow(0, start, kWindow);
    const Dropout options{.p = 0.3, .key = 7, .rows = coordinates(start, kWindow)};
    EXPECT_TRUE(dropped.narrow(0, start, kWindow).equal(dropout(few, options))) << start;
    EXPECT_TRUE(wide.narrow(0, start, kWindow).equal(few.to(at::kFloat))) << start;
  }
}

}  // namespace
}  // namespace apus::ops
