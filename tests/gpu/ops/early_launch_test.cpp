// Kernels that come up before the one ahead has ended must still see all that it wrote, and may not write
// what it still reads. Chains of operations that feed one another, in memory that the allocator hands on at
// once, against the same chains with the device drained between any two.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <c10/cuda/CUDAFunctions.h>

#include "apus/ops/norm.h"
#include "apus/ops/projection.h"
#include "apus/ops/rotary.h"
#include "apus/ops/select_rows.h"
#include "tests/gpu/ops/support/gpu_checks.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

class EarlyLaunchOnGpu : public GpuTest {};

constexpr double kEps = 1e-6;
constexpr int64_t kVocab = 3000;
constexpr QkvHeads kHeads{10, 2, 64};
constexpr int kRepeats = 4;

enum class Pace { kAtOnce, kDrained };

void pause(Pace pace) {
  if (pace == Pace::kDrained) c10::cuda::device_synchronize();
}

at::Tensor tokens(int64_t rows, int64_t below) {
  at::Generator generator = at::cuda::detail::createCUDAGenerator();
  generator.set_current_seed(9);
  return at::randint(0, below, {rows}, generator, at::TensorOptions(at::kLong).device(at::kCUDA));
}

/// Norms, turns heads, looks rows up and selects them, round after round.
at::Tensor chained(at::Tensor x, Pace pace) {
  const at::NoGradGuard no_grad;
  const int64_t rows = x.size(0), columns = kHeads.columns();
  const at::Tensor weight = gpu_random({columns}, 2), looked_up = tokens(rows, rows);
  const at::Tensor cos = gpu_random({rows, kHeads.head_dim}, 3), sin = gpu_random({rows, kHeads.head_dim}, 4);
  const at::Tensor backwards = at::arange(rows - 1, -1, -1, looked_up.options());
  pause(Pace::kDrained);
  for (int round = 0; round < 6; ++round) {
    x = rms_norm_residual(x, weight, kEps).normed;
    pause(pace);
    x = embedding(looked_up, x);
    pause(pace);
    const Qkv made = rotary_qkv(x, kHeads, cos, sin);
    pause(pace);
    const at::Tensor k = select_rows(made.k_TKH.flatten(1), backwards);
    pause(pace);
    x.narrow(1, 0, k.size(1)).copy_(k);
    x = add_rms_norm(x, select_rows(x, backwards), weight, kEps).normed;
    pause(pace);
  }
  return x;
}

/// Gradients of table, weight and x behind a lookup, a norm, a rotation and a selection.
Tensors gradients(int64_t rows, Pace pace) {
  const auto drained = [pace](const at::Tensor& grad) {
    pause(pace);
    return grad;
  };
  const at::Tensor table = gpu_random({kVocab, kHeads.columns()}, 5).set_requires_grad(true);
  const at::Tensor weight = gpu_random({kHeads.columns()}, 6).set_requires_grad(true);
  const at::Tensor cos = gpu_random({rows, kHeads.head_dim}, 3), sin = gpu_random({rows, kHeads.head_dim}, 4);
  const at::Tensor looked_up = embedding(tokens(rows, kVocab), table);
  const ResidualRmsNorm normed = rms_norm_residual(looked_up, weight, kEps);
  const Qkv made = rotary_qkv(normed.normed, kHeads, cos, sin);
  const at::Tensor selected = select_rows(
      made.q_TNH.flatten(1), at::arange(0, rows, 2, at::TensorOptions(at::kLong).device(at::kCUDA)));
  for (const at::Tensor& each : {looked_up, normed.normed, made.q_TNH}) each.register_hook(drained);
  torch::autograd::backward(
      {selected, made.k_TKH, normed.passed},
      {gpu_random({selected.size(0), selected.size(1)}, 7),
       gpu_random({rows, kHeads.kv_heads, kHeads.head_dim}, 8), gpu_random({rows, kHeads.columns()}, 9)});
  return {table.grad(), weight.grad()};
}

TEST_F(EarlyLaunchOnGpu, ChainsReadWhatWasWritten) {
  for (const int64_t rows : {3, 500, 5000}) {
    const at::Tensor x = gpu_random({rows, kHeads.columns()}, 1), wanted = chained(x, Pace::kDrained);
    for (int repeat = 0; repeat < kRepeats; ++repeat) expect_equal(chained(x, Pace::kAtOnce), wanted);
  }
}

TEST_F(EarlyLaunchOnGpu, BackwardChainsReadWhatWasWritten) {
  for (const int64_t rows : {3, 500, 5000}) {
    const Tensors wanted = gradients(rows, Pace::kDrained);
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const Tensors found = gradients(rows, Pace::kAtOnce);
      for (size_t i = 0; i < wanted.size(); ++i) expect_equal(found[i], wanted[i]);
    }
  }
}

}  // namespace
}  // namespace apus::ops
