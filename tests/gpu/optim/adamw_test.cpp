#include "apus/optim/adamw.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::optim {
namespace {

using apus::testing::random_tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class GpuAdamw : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }
};

struct Case {
  int64_t elements = 0;
  at::ScalarType states = at::kFloat;
  at::ScalarType grad = at::kFloat;
  std::optional<at::ScalarType> copy;
  /// Elements by which all arrays start behind an aligned address.
  int64_t shift = 0;

  std::string text() const {
    return std::to_string(elements) + " states " + c10::toString(states) + " grad " + c10::toString(grad) +
           " copy " + (copy ? c10::toString(*copy) : "none") + " shift " + std::to_string(shift);
  }
};

/// Everything that one device holds.
struct Arrays {
  AdamwState state;
  at::Tensor copy;
};

/// A tensor with the values on `device`, `shift` elements behind an aligned address.
at::Tensor placed(const at::Tensor& values, at::Device device, int64_t shift) {
  const at::Tensor room = at::full({values.numel() + shift}, kNan, values.options().device(device));
  const at::Tensor part = room.slice(0, shift);
  part.copy_(values);
  return part;
}

Arrays arrays_on(at::Device device, const Case& the) {
  const auto zeros = [&] { return placed(at::zeros({the.elements}, the.states), device, the.shift); };
  Arrays arrays{
      {placed(random_tensor({the.elements}, 1).mul(0.1).to(the.states), device, the.shift), zeros(), zeros()},
      {}};
  if (the.copy) arrays.copy = placed(at::full({the.elements}, kNan, *the.copy), device, the.shift);
  return arrays;
}

/// Segments with gaps and odd borders; the first element and the last belong to one where there are enough.
std::vector<Segment> segments_of(int64_t elements) {
  std::vector<Segment> segments;
  int64_t begin = 0, length = 129, ordinal = 0;
  while (begin < elements) {
    const int64_t end = std::min(begin + length, elements);
    segments.push_back({.begin = begin,
                        .end = end,
                        .lr_scale = 1.0 + 0.25 * static_cast<double>(ordinal % 3),
                        .weight_decay = ordinal % 2 == 0 ? 1.0 : 0.0,
                        .rounding_key = static_cast<uint64_t>(77 + ordinal),
                        .first_element = ordinal % 2 == 0 ? 8 * ordinal : 5});
    begin = end + ordinal % 4 * 3;
    length = length * 3 + 5;
    ++ordinal;
  }
  return segments;
}

/// Three steps; gaps of the gradient hold NaN.
void train(const Arrays& arrays, const Case& the, at::Device device, bool step_on_device) {
  const AdamwSegments segments(segments_of(the.elements), the.elements, device);
  at::Tensor mask = at::full({the.elements}, kNan, at::kFloat);
  for (const Segment& segment : segments.list()) mask.slice(0, segment.begin, segment.end).fill_(1.0);
  for (int64_t step = 1; step <= 3; ++step) {
    const at::Tensor grad = random_tensor({the.elements}, 10 + static_cast<uint64_t>(step)).mul_(mask);
    GradScaling scaling{.clip_factor = at::full({1}, 0.75, at::TensorOptions().device(device)),
                        .found_inf = at::zeros({1}, at::TensorOptions().device(device))};
    AdamwOptions options{.lr = 1e-2, .decay = 0.1, .step = step};
    if (step_on_device && device.is_cuda()) {
      scaling.step = at::full({1}, step, at::TensorOptions().dtype(at::kLong).device(device));
      options.step = 99;
    }
    adamw_step(arrays.state, placed(grad.to(the.grad), device, the.shift), arrays.copy, segments, options,
               scaling);
  }
}

/// Equal bits, NaN included.
void expect_same_bits(const at::Tensor& gpu, const at::Tensor& cpu, const std::string& what) {
  const at::ScalarType bits = cpu.scalar_type() == at::kFloat ? at::kInt : at::kShort;
  const at::Tensor found = gpu.cpu().contiguous().view(bits), wanted = cpu.contiguous().view(bits);
  const int64_t different = found.ne(wanted).logical_and(cpu.isnan().logical_not()).sum().item<int64_t>();
  EXPECT_EQ(different, 0) << what << ": of " << cpu.numel();
  EXPECT_TRUE(gpu.cpu().isnan().equal(cpu.isnan())) << what << ": other places are written";
}

void expect_twin(const Case& the, bool step_on_device = false) {
  const Arrays cpu = arrays_on(at::kCPU, the), gpu = arrays_on(at::kCUDA, the);
  train(cpu, the, at::kCPU, false);
  train(gpu, the, at::Device(at::kCUDA, 0), step_on_device);
  expect_same_bits(gpu.state.master_N, cpu.state.master_N, the.text() + " master");
  expect_same_bits(gpu.state.exp_avg_N, cpu.state.exp_avg_N, the.text() + " exp_avg");
  expect_same_bits(gpu.state.exp_avg_sq_N, cpu.state.exp_avg_sq_N, the.text() + " exp_avg_sq");
  if (the.copy) expect_same_bits(gpu.copy, cpu.copy, the.text() + " copy");
}

TEST_F(GpuAdamw, Fp32StatesHaveTheBitsOfTheCpu) {
  for (const int64_t elements : {1, 127, 128, 129, 1000, 4099, 100'004}) {
    for (const at::ScalarType grad : {at::kFloat, at::kBFloat16}) {
      expect_twin({.elements = elements, .grad = grad});
      expect_twin({.elements = elements, .grad = grad, .copy = at::kBFloat16});
      expect_twin({.elements = elements, .grad = grad, .copy = at::kFloat});
      expect_twin({.elements = elements, .grad = grad, .copy = at::kHalf});
    }
  }
}

TEST_F(GpuAdamw, AddressesThatAreNotAlignedAreRight) {
  for (const int64_t shift : {1, 2, 4}) {
    expect_twin({.elements = 4096, .copy = at::kBFloat16, .shift = shift});
    expect_twin({.elements = 4096, .states = at::kBFloat16, .grad = at::kBFloat16, .shift = shift});
  }
}

TEST_F(GpuAdamw, Bfloat16StatesHaveTheBitsOfTheCpu) {
  for (const int64_t elements : {1, 127, 128, 129, 1000, 4096, 100'000}) {
    for (const at::ScalarType grad : {at::kFloat, at::kBFloat16}) {
      expect_twin({.elements = elements, .states = at::kBFloat16, .grad = grad});
    }
  }
}

/// Every bit pattern of bf16, 64 neighbours of one exponent and sign in a row, the rows in no order.
at::Tensor every_bf16(uint64_t turn) {
  constexpr int64_t kAll = 1 << 16;
  const at::Tensor patterns = at::empty({kAll}, at::kShort);
  for (int64_t i = 0; i < kAll; ++i) {
    const uint64_t row = (static_cast<uint64_t>(i) / 64 * 389 + turn) % 1024;
    patterns.data_ptr<int16_t>()[i] = static_cast<int16_t>(static_cast<uint16_t>(row * 64 + i % 64));
  }
  return patterns.view(at::kBFloat16);
}

/// One step over gradients and moments of every size that there is: roots of zeros, of tiny numbers, of what
/// overflows; second moments that are not negative, as squares are.
void expect_twin_at_every_size(at::ScalarType states) {
  const auto on = [states](at::Device device) {
    const auto placed_as = [&](const at::Tensor& values) { return values.to(states).to(device); };
    const at::Tensor wide = every_bf16(1), squares = every_bf16(77).to(at::kFloat).abs();
    const AdamwState state{placed_as(random_tensor({wide.numel()}, 4)), placed_as(wide), placed_as(squares)};
    const AdamwSegments whole({{.begin = 0, .end = wide.numel(), .rounding_key = 5}}, wide.numel(), device);
    adamw_step(state, every_bf16(500).to(device), {}, whole, {.lr = 1e-2, .decay = 0.1, .step = 2});
    return state;
  };
  const AdamwState cpu = on(at::kCPU), gpu = on(at::Device(at::kCUDA, 0));
  const std::string what = std::string("states ") + c10::toString(states);
  expect_same_bits(gpu.master_N, cpu.master_N, what + " master");
  expect_same_bits(gpu.exp_avg_N, cpu.exp_avg_N, what + " exp_avg");
  expect_same_bits(gpu.exp_avg_sq_N, cpu.exp_avg_sq_N, what + " exp_avg_sq");
}

TEST_F(GpuAdamw, NumbersOfEverySizeHaveTheBitsOfTheCpu) {
  expect_twin_at_every_size(at::kFloat);
  expect_twin_at_every_size(at::kBFloat16);
}

TEST_F(GpuAdamw, TheStepMayBeKnownToTheDeviceAlone) {
  expect_twin({.elements = 4096, .copy = at::kBFloat16}, /*step_on_device=*/true);
  expect_twin({.elements = 4096, .states = at::kBFloat16, .grad = at::kBFloat16}, /*step_on_device=*/true);
}

TEST_F(GpuAdamw, ALargeShardIsRightToItsEnd) {
  expect_twin({.elements = (int64_t{1} << 21) + 3, .grad = at::kBFloat16, .copy = at::kBFloat16});
}

TEST_F(GpuAdamw, AnOverflowLeavesEverythingAsItWas) {
  for (const at::ScalarType states : {at::kFloat, at::kBFloat16}) {
    const Case the{.elements = 1000, .states = states};
    const Arrays arrays = arrays_on(at::kCUDA, the);
    const at::Tensor before = arrays.state.master_N.clone();
    const auto on_gpu = at::TensorOptions().device(at::kCUDA);
    adamw_step(arrays.state, at::full({1000}, kNan, on_gpu), {}, segments_of(1000), {.lr = 1.0},
               {.found_inf = at::full({1}, 1.0, on_gpu)});
    EXPECT_TRUE(at::equal(arrays.state.master_N, before));
    EXPECT_EQ(arrays.state.exp_avg_N.abs().sum().item<double>(), 0.0);
    EXPECT_EQ(arrays.state.exp_avg_sq_N.abs().sum().item<double>(), 0.0);
  }
}

TEST_F(GpuAdamw, StochasticRoundingIsRightInTheMean) {
  constexpr int64_t kMany = 1 << 16;
  const auto bf16 = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  const AdamwState state{at::full({kMany}, 1.0, bf16), at::zeros({kMany}, bf16), at::zeros({kMany}, bf16)};
  const double lr = 1.0 / 128 / 40;
  const std::vector<Segment> whole{{.begin = 0, .end = kMany, .rounding_key = 9}};
  adamw_step(state, at::full({kMany}, -1.0, bf16), {}, whole, {.lr = lr, .step = 1});
  EXPECT_NEAR(state.master_N.to(at::kDouble).sub(1.0).mean().item<double>(), lr, 4 * 0.0006 / 128);
}

TEST_F(GpuAdamw, RefusesTensorsOnAnotherDevice) {
  const Arrays arrays = arrays_on(at::kCUDA, {.elements = 8});
  EXPECT_THROW(adamw_step(arrays.state, at::zeros({8}), {}, segments_of(8), {.lr = 1.0}), ShapeError);
  EXPECT_THROW(adamw_step(arrays.state, at::zeros({8}, at::TensorOptions().device(at::kCUDA)), {},
                          segments_of(8), {.lr = 1.0}, {.found_inf = at::zeros({1})}),
               ShapeError);
}

}  // namespace
}  // namespace apus::optim
