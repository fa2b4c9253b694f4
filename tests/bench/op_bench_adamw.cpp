#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apus/optim/adamw.h"
#include "parallel/grad_norm_cuda.h"
#include "tests/bench/op_bench.h"

namespace apus::bench {
namespace {

constexpr int64_t kElements = 500'000'000 / 1024 * 1024;

// Arrays that are read side by side meet in the same banks of the memory at some distances and not at others:
// equal distances of an unlucky length take a quarter of the speed, random ones a few percent. So a shard
// lies in so many places, which are taken in turns.
constexpr int kPlaces = 5;
constexpr int64_t kPage = int64_t{2} << 20, kMostGapPages = 200;

/// Memory for arrays with random gaps between them, each at a page of the card.
class Arena {
 public:
  explicit Arena(int64_t bytes)
      : bytes_B_(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA))) {}

  at::Tensor take(at::ScalarType dtype) {
    const int64_t begin = at_ + std::uniform_int_distribution<int64_t>(1, kMostGapPages)(random_) * kPage;
    const int64_t end = begin + kElements * static_cast<int64_t>(c10::elementSize(dtype));
    at_ = (end + kPage - 1) / kPage * kPage;
    return bytes_B_.slice(0, begin, end).view(dtype);
  }
  at::Tensor take_random(at::ScalarType dtype, double scale) { return take(dtype).normal_(0.0, scale); }
  at::Tensor take_zeros(at::ScalarType dtype) { return take(dtype).zero_(); }

 private:
  at::Tensor bytes_B_;
  int64_t at_ = 0;
  std::mt19937_64 random_{1};
};

/// What `arrays` arrays of so many bytes in all need of an arena, wherever their gaps fall.
int64_t arena_bytes(int64_t bytes, int64_t arrays) {
  return bytes + arrays * (kMostGapPages + 1) * kPage;
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

Shard make_shard(Arena& arena, at::ScalarType states, at::ScalarType grad) {
  const at::TensorOptions gpu = at::TensorOptions().device(at::kCUDA);
  Shard shard{{arena.take_random(states, 0.02), arena.take_zeros(states), arena.take_zeros(states)},
              arena.take_random(grad, 1e-3),
              {},
              optim::AdamwSegments(seven_b_segments(), kElements, at::Device(at::kCUDA, 0)),
              {.clip_factor = at::full({1}, 1.0, gpu),
               .found_inf = at::zeros({1}, gpu),
               .step = at::full({1}, int64_t{3}, gpu.dtype(at::kLong))}};
  if (states == at::kFloat) shard.copy = arena.take_zeros(at::kBFloat16);
  return shard;
}

OpCase adamw_case(at::ScalarType states, at::ScalarType grad) {
  const auto size = [](at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); };
  const int64_t copy = states == at::kFloat ? 2 : 0;
  Arena arena(kPlaces * arena_bytes(kElements * (3 * size(states) + size(grad) + copy), 5));
  auto shards = std::make_shared<std::vector<Shard>>();
  for (int place = 0; place < kPlaces; ++place) shards->push_back(make_shard(arena, states, grad));
  OpCase op;
  op.bytes = kElements * (6 * size(states) + size(grad) + copy);
  op.run = [shards, turn = size_t{0}]() mutable {
    const Shard& shard = (*shards)[turn++ % shards->size()];
    optim::adamw_step(shard.state, shard.grad, shard.copy, shard.segments, {.lr = 1e-5}, shard.scaling);
  };
  op.reference = copy_of(op.bytes);
  op.reference_name = "copy of the same bytes";
  return op;
}

OpCase norm_case(at::ScalarType dtype) {
  const at::Tensor grad = Arena(arena_bytes(kElements * static_cast<int64_t>(c10::elementSize(dtype)), 1))
                              .take_random(dtype, 1e-3);
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
