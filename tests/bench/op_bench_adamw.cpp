#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "apus/optim/adamw.h"
#include "parallel/grad_norm_cuda.h"
#include "tests/bench/op_bench.h"

namespace apus::bench {
namespace {

constexpr int64_t kElements = 500'000'000 / 1024 * 1024;

at::Tensor random_on_gpu(at::ScalarType dtype, double scale) {
  at::Tensor values = at::empty({kElements}, at::TensorOptions().dtype(dtype).device(at::kCUDA));
  return values.normal_(0.0, scale);
}

/// A copy that reads and writes as many bytes as the operation.
std::function<void()> copy_of(int64_t bytes) {
  const auto raw = at::TensorOptions().dtype(at::kByte).device(at::kCUDA);
  const at::Tensor from = at::empty({bytes / 2}, raw), to = at::empty({bytes / 2}, raw);
  from.random_(0, 256);
  return [from, to] { to.copy_(from); };
}

/// Tensors of one shard, cut like the parameters of a 7B model.
struct Shard {
  optim::AdamwState state;
  at::Tensor grad, copy;
  optim::AdamwSegments segments;
  optim::GradScaling scaling;
};

std::vector<optim::Segment> seven_b_segments() {
  std::vector<optim::Segment> segments;
  int64_t begin = 0;
  for (size_t index = 0; begin < kElements; ++index) {
    constexpr int64_t kSizes[] = {3584 * 3584, 3584,         512 * 3584,   512,          512 * 3584, 512,
                                  3584 * 3584, 18944 * 3584, 18944 * 3584, 18944 * 3584, 3584,       3584};
    const int64_t end = std::min(begin + kSizes[index % std::size(kSizes)], kElements);
    segments.push_back({.begin = begin, .end = end, .weight_decay = 0.1, .rounding_key = index});
    begin = (end + 127) / 128 * 128;
  }
  return segments;
}

OpCase adamw_case(at::ScalarType states, at::ScalarType grad) {
  const bool fp32 = states == at::kFloat;
  const at::TensorOptions gpu = at::TensorOptions().device(at::kCUDA);
  const auto moments = gpu.dtype(states);
  auto shard = std::make_shared<Shard>(
      Shard{{random_on_gpu(states, 0.02), at::zeros({kElements}, moments), at::zeros({kElements}, moments)},
            random_on_gpu(grad, 1e-3),
            fp32 ? at::empty({kElements}, gpu.dtype(at::kBFloat16)) : at::Tensor(),
            optim::AdamwSegments(seven_b_segments(), kElements, at::Device(at::kCUDA, 0)),
            {.clip_factor = at::full({1}, 1.0, gpu),
             .found_inf = at::zeros({1}, gpu),
             .step = at::full({1}, int64_t{3}, gpu.dtype(at::kLong))}});
  const auto size = [](at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); };
  OpCase op;
  op.bytes = kElements * (6 * size(states) + size(grad) + (fp32 ? 2 : 0));
  op.run = [shard] {
    optim::adamw_step(shard->state, shard->grad, shard->copy, shard->segments, {.lr = 1e-5}, shard->scaling);
  };
  op.reference = copy_of(op.bytes);
  op.reference_name = "copy of the same bytes";
  return op;
}

OpCase norm_case(at::ScalarType dtype) {
  const at::Tensor grad = random_on_gpu(dtype, 1e-3);
  const at::Tensor sums =
      at::empty({kElements / 1024}, at::TensorOptions().dtype(at::kDouble).device(at::kCUDA));
  OpCase op;
  op.bytes = static_cast<int64_t>(grad.nbytes());
  op.run = [grad, sums] { parallel::cuda::block_sums_of_squares(grad, {}, sums); };
  op.reference = copy_of(op.bytes);
  op.reference_name = "copy of the same bytes";
  return op;
}

}  // namespace

void add_adamw_cases(Suite& suite) {
  suite.add("adamw/fp32 states, fp32 gradient, bf16 copy 500M",
            [] { return adamw_case(at::kFloat, at::kFloat); });
  suite.add("adamw/fp32 states, bf16 gradient, bf16 copy 500M",
            [] { return adamw_case(at::kFloat, at::kBFloat16); });
  suite.add("adamw/bf16 states, bf16 gradient 500M", [] { return adamw_case(at::kBFloat16, at::kBFloat16); });
  suite.add("grad_norm/fp32 500M", [] { return norm_case(at::kFloat); });
  suite.add("grad_norm/bf16 500M", [] { return norm_case(at::kBFloat16); });
}

}  // namespace apus::bench
