#include "apus/ops/attention.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <numeric>
#include <thread>
#include <vector>

#include "apus/base/error.h"
#include "ops/attention_cuda.h"
#include "ops/attention_shape.h"
#include "ops/cuda/attention_plans.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;
using Tensors = std::vector<at::Tensor>;

struct Heads {
  int64_t heads = 28;
  int64_t kv_heads = 4;
  int64_t head_dim = 128;
};

struct Layout {
  std::vector<int64_t> lengths;
  int64_t padded_length = 0;

  int64_t rows() const {
    return padded_length > 0 ? padded_length * static_cast<int64_t>(lengths.size())
                             : std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  }
  int64_t start(size_t i) const {
    return padded_length > 0
               ? padded_length * static_cast<int64_t>(i)
               : std::accumulate(lengths.begin(), lengths.begin() + static_cast<int64_t>(i), int64_t{0});
  }
};

/// q, k, v and the gradient of the result, which is 0 in padded rows.
struct Operands {
  at::Tensor q, k, v, dout;

  Operands in(at::ScalarType dtype) const { return {q.to(dtype), k.to(dtype), v.to(dtype), dout.to(dtype)}; }
};

/// The rows that belong to sequences.
at::Tensor tokens_of(const at::Tensor& x, const Layout& layout) {
  Tensors parts = {x.narrow(0, 0, 0)};
  for (size_t i = 0; i < layout.lengths.size(); ++i)
    parts.push_back(x.narrow(0, layout.start(i), layout.lengths[i]));
  return at::cat(parts);
}

Operands random_operands(const Layout& layout, const Heads& heads, uint64_t seed,
                         at::ScalarType dtype = at::kBFloat16) {
  at::Generator random = at::cuda::detail::createCUDAGenerator();
  random.set_current_seed(seed);
  const auto options = at::TensorOptions().dtype(dtype).device(at::kCUDA);
  const auto make = [&](int64_t n) { return at::randn({layout.rows(), n, heads.head_dim}, random, options); };
  Operands in{make(heads.heads), make(heads.kv_heads), make(heads.kv_heads), make(heads.heads)};
  for (size_t i = 0; layout.padded_length > 0 && i < layout.lengths.size(); ++i)
    in.dout.narrow(0, layout.start(i) + layout.lengths[i], layout.padded_length - layout.lengths[i]).zero_();
  return in;
}

/// The result and the gradients of q, k and v.
template <class Function>
Tensors outcome(const Operands& in, const Function& attend) {
  Tensors leaves;
  for (const at::Tensor& x : {in.q, in.k, in.v}) leaves.push_back(x.detach().set_requires_grad(true));
  const at::Tensor out = attend(leaves[0], leaves[1], leaves[2]);
  out.backward(in.dout);
  return {out.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

/// Softmax written out, a sequence at a time, in the operands' dtype.
Tensors written_out(const Operands& in, const Layout& layout) {
  return outcome(in, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    Tensors parts = {q.narrow(0, 0, 0)};
    for (size_t i = 0; i < layout.lengths.size(); ++i) {
      const int64_t length = layout.lengths[i];
      const auto cut = [&](const at::Tensor& x) {
        return x.narrow(0, layout.start(i), length)
            .transpose(0, 1)
            .repeat_interleave(q.size(1) / x.size(1), 0);
      };
      const at::Tensor hidden = at::ones({length, length}, q.options().dtype(at::kBool)).triu(1);
      const at::Tensor scores = at::matmul(cut(q), cut(k).transpose(1, 2)) / std::sqrt(double(q.size(2)));
      parts.push_back(
          at::matmul(at::softmax(scores.masked_fill(hidden, -INFINITY), -1), cut(v)).transpose(0, 1));
      const int64_t end = i + 1 < layout.lengths.size() ? layout.start(i + 1) : layout.rows();
      parts.push_back(at::zeros({end - layout.start(i) - length, q.size(1), q.size(2)}, q.options()));
    }
    return at::cat(parts);
  });
}

/// Leaves NaN in the allocator's free blocks, so that what the operation leaves unwritten shows.
void poison_free_memory(const Operands& in) {
  Tensors blocks;
  for (int i = 0; i < 4; ++i)
    for (const at::Tensor& like : {in.q, in.k}) blocks.push_back(at::full(like.sizes(), NAN, like.options()));
  blocks.push_back(at::full({in.q.size(0), in.q.size(1)}, NAN, in.q.options().dtype(at::kFloat)));
  blocks.push_back(at::full({int64_t{64} << 20}, NAN, in.q.options().dtype(at::kFloat)));
}

class DeterministicMode {
 public:
  DeterministicMode() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); }
  ~DeterministicMode() { at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false); }
};

const char* const kNames[] = {"out", "dq", "dk", "dv"};

double rms(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.to(at::kDouble).square().mean().sqrt().item<double>();
}

class AttentionOnGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (at::hasCUDA() && at::cuda::device_count() > 0) plans_ = make_attention_plans();
  }
  static void TearDownTestSuite() { plans_.reset(); }
  void SetUp() override {
    if (!plans_) GTEST_SKIP() << "no GPU";
    // ATen's own cuDNN attention builds a plan for each length that it meets.
    at::globalContext().setSDPUseCuDNN(false);
  }

  static std::shared_ptr<const DeviceRows> on_device(const Layout& layout) {
    return std::make_shared<const DeviceRows>(layout.lengths, layout.padded_length, at::Device(at::kCUDA, 0),
                                              plans_);
  }
  static AttentionRows rows_of(const Layout& layout) {
    return {.lengths = layout.lengths, .padded_length = layout.padded_length, .device = on_device(layout)};
  }
  static Tensors attended(const Operands& in, const AttentionRows& rows, RowRoom room = {}) {
    poison_free_memory(in);
    return outcome(in, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return attention(q, k, v, rows, room);
    });
  }

  /// Against softmax written out in fp32: at most half as far again as ATen's own operations in bf16.
  static void expect_as_good_as_aten(const Tensors& found, const Operands& in, const Layout& layout) {
    const Tensors exact = written_out(in.in(at::kFloat), layout);
    const Tensors aten = outcome(in, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return twin::attention(q, k, v, {.lengths = layout.lengths, .padded_length = layout.padded_length});
    });
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_TRUE(found[i].isfinite().all().item<bool>()) << kNames[i];
      const at::Tensor want = tokens_of(exact[i], layout);
      const double error = rms(tokens_of(found[i], layout).to(at::kFloat) - want);
      const double allowed = rms(tokens_of(aten[i], layout).to(at::kFloat) - want);
      EXPECT_LE(error, 1.5 * allowed + 1e-5 * rms(want)) << kNames[i] << " of rms " << rms(want);
    }
  }

  static void check(const Heads& heads, const Layout& layout, uint64_t seed = 1) {
    const Operands in = random_operands(layout, heads, seed);
    expect_as_good_as_aten(attended(in, rows_of(layout)), in, layout);
  }

  static std::shared_ptr<AttentionPlans> plans_;
};

std::shared_ptr<AttentionPlans> AttentionOnGpu::plans_;

const Layout kMixed{{300, 0, 1, 127, 128, 129, 2, 1000}};

TEST_F(AttentionOnGpu, PlansBuildForTheUsualHeads) {
  for (const Heads& heads : {Heads{28, 4, 128}, Heads{14, 2, 64}, Heads{40, 8, 128}, Heads{16, 16, 128}}) {
    const cuda::AttentionSizes sizes{.heads = heads.heads,
                                     .kv_heads = heads.kv_heads,
                                     .head_dim = heads.head_dim,
                                     .sequences = 4,
                                     .slots = 16,
                                     .max_length = 4096,
                                     .rows = 16384,
                                     .out_stride = heads.heads * heads.head_dim};
    EXPECT_TRUE(plans_->has(cuda::forward_plan(sizes))) << heads.heads;
    EXPECT_TRUE(plans_->has(cuda::backward_plan(sizes))) << heads.heads;
  }
}

TEST_F(AttentionOnGpu, MixedLengthsMatch) {
  check({28, 4, 128}, kMixed);
  check({14, 2, 64}, kMixed);
  check({40, 8, 128}, kMixed);
  check({8, 8, 64}, kMixed);
}

TEST_F(AttentionOnGpu, OtherHeadSizesMatch) {
  for (const int64_t head_dim : {8, 80, 96, 256}) check({6, 2, head_dim}, {{130, 0, 1, 300}});
}

TEST_F(AttentionOnGpu, ShortAndLongSequencesMatchUnderOnePlan) {
  const Heads heads{8, 2, 128};
  uint64_t seed = 10;
  for (const Layout& layout : std::vector<Layout>{{{4096}},
                                                  {{1}},
                                                  {{127}},
                                                  {{129}},
                                                  {{0, 0, 1, 0}},
                                                  {{1, 1, 1}},
                                                  {{2000, 96, 1999, 1}},
                                                  {{64, 4000}}})
    check(heads, layout, ++seed);
}

TEST_F(AttentionOnGpu, EvenLengthsMatch) {
  check({28, 4, 128}, {{1024, 1024, 1024}});
  check({14, 2, 64}, {{1536, 1536}});
  check({8, 8, 64}, {{2048}});
  check({4, 2, 128}, {{1024, 1024}, 1024});
  check({4, 2, 128}, {{1024, 1024}, 1025});  // padding: not even
  const Layout even{{1024, 1024}};
  const Operands in = random_operands(even, {4, 2, 128}, 20);
  for (const RowRoom room : {RowRoom{.after = 64}, RowRoom{.before = 16, .after = 8}})
    expect_as_good_as_aten(attended(in, rows_of(even), room), in, even);
  const Tensors first = attended(in, rows_of(even)), second = attended(in, rows_of(even));
  for (const size_t i : {0, 2, 3}) expect_equal(second[i], first[i], kNames[i]);
  expect_equal(attention(in.q, in.k, in.v, rows_of(even)), first[0], "without tape");
}

TEST_F(AttentionOnGpu, MoreSequencesThanAClassMatch) {
  for (const size_t count : {16, 17, 65}) {
    Layout layout;
    for (size_t i = 0; i < count; ++i) layout.lengths.push_back(static_cast<int64_t>(i * 37 % 131));
    check({4, 2, 128}, layout, count);
  }
}

TEST_F(AttentionOnGpu, PaddedLayoutsMatchAndPaddingIsFinite) {
  check({28, 4, 128}, {{200, 0, 129, 256}, 256});
  check({14, 2, 64}, {{1, 100}, 131});
  check({4, 4, 128}, {{64, 64}, 64});
  check({6, 2, 96}, {{200, 0, 129}, 201});
}

TEST_F(AttentionOnGpu, Fp32IsExact) {
  for (const Layout& layout : {kMixed, Layout{{100, 0, 129}, 130}}) {
    const Operands in = random_operands(layout, {4, 2, 64}, 5, at::kFloat);
    const Tensors found = attended(in, rows_of(layout)), exact = written_out(in.in(at::kDouble), layout);
    for (size_t i = 0; i < exact.size(); ++i) {
      const at::Tensor want = tokens_of(exact[i], layout);
      EXPECT_LE(rms(tokens_of(found[i], layout) - want), 1e-5 * rms(want)) << kNames[i];
    }
  }
}

TEST_F(AttentionOnGpu, Fp16TakesOneKernelAndMatches) {
  for (const Layout& layout : {kMixed, Layout{{200, 0, 129, 256}, 256}}) {
    for (const int64_t head_dim : {64, 128}) {
      const Operands in = random_operands(layout, {14, 2, head_dim}, 8, at::kHalf);
      expect_as_good_as_aten(attended(in, rows_of(layout)), in, layout);
    }
  }
}

TEST_F(AttentionOnGpu, WithoutRowsOnTheDeviceMatches) {
  const Operands in = random_operands(kMixed, {14, 2, 64}, 6);
  expect_as_good_as_aten(attended(in, {.lengths = kMixed.lengths}), in, kMixed);
}

TEST_F(AttentionOnGpu, NoRowsGiveZeroGradients) {
  const Layout none{{0, 0}};
  const Operands in = random_operands(none, {14, 2, 64}, 7);
  for (const at::Tensor& x : attended(in, rows_of(none))) EXPECT_EQ(x.size(0), 0);
}

TEST_F(AttentionOnGpu, StridedOperandsMatch) {
  const Heads heads{4, 2, 128};
  const Operands in = random_operands(kMixed, heads, 8);
  // q, k and v in one row, and a gradient whose rows lie in wider ones.
  const at::Tensor qkv = at::cat({in.q, in.k, in.v}, 1), wide = at::cat({in.dout, in.dout}, 1);
  const Operands views{qkv.narrow(1, 0, 4), qkv.narrow(1, 4, 2), qkv.narrow(1, 6, 2), wide.narrow(1, 4, 4)};
  expect_as_good_as_aten(attended(views, rows_of(kMixed)), in, kMixed);
}

TEST_F(AttentionOnGpu, LeavesRoomThatTheNextOperationMayWrite) {
  const Heads heads{4, 2, 128};
  const Operands in = random_operands(kMixed, heads, 9);
  for (const RowRoom room : {RowRoom{.after = 64}, RowRoom{.before = 16, .after = 8}, RowRoom{.after = 4}}) {
    poison_free_memory(in);
    const Tensors found = outcome(in, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      at::Tensor out = attention(q, k, v, rows_of(kMixed), room);
      EXPECT_TRUE(has_room(out.flatten(1), room));
      const at::NoGradGuard no_grad;
      const at::Tensor beside = with_room(out.detach().flatten(1), room);
      beside.narrow(1, 0, room.before).fill_(NAN);
      beside.narrow(1, beside.size(1) - room.after, room.after).fill_(NAN);
      return out;
    });
    expect_as_good_as_aten(found, in, kMixed);
  }
}

TEST_F(AttentionOnGpu, RepeatsAreBitwiseEqualWithAndWithoutTape) {
  const Operands in = random_operands(kMixed, {14, 2, 64}, 11);
  const Tensors first = attended(in, rows_of(kMixed)), second = attended(in, rows_of(kMixed));
  for (const size_t i : {0, 2, 3}) expect_equal(second[i], first[i], kNames[i]);
  expect_equal(attention(in.q, in.k, in.v, rows_of(kMixed)), first[0], "without tape");
}

TEST_F(AttentionOnGpu, DeterministicGradientsAreBitwiseEqual) {
  const Layout layout{{900, 0, 129, 700}};
  for (const Heads& heads : {Heads{14, 2, 64}, Heads{8, 2, 128}, Heads{6, 2, 96}}) {
    const Operands in = random_operands(layout, heads, 12);
    Tensors first, second;
    {
      const DeterministicMode deterministic;
      first = attended(in, rows_of(layout));
      second = attended(in, rows_of(layout));
    }
    for (size_t i = 0; i < first.size(); ++i) expect_equal(second[i], first[i], kNames[i]);
    expect_as_good_as_aten(first, in, layout);
  }
}

TEST_F(AttentionOnGpu, ASequenceOf32kMatches) {
  const Layout layout{{32768}};
  const Operands in = random_operands(layout, {8, 2, 128}, 13);
  const Tensors planned = attended(in, rows_of(layout)), flash = attended(in, {.lengths = layout.lengths});
  for (size_t i = 0; i < planned.size(); ++i)
    EXPECT_LE(rms(planned[i].to(at::kFloat) - flash[i].to(at::kFloat)), 1e-2 * rms(flash[i])) << kNames[i];
  // The last rows see all others.
  const at::Tensor k = in.k.to(at::kFloat).transpose(0, 1).repeat_interleave(4, 0);
  const at::Tensor v = in.v.to(at::kFloat).transpose(0, 1).repeat_interleave(4, 0);
  const at::Tensor q = in.q.narrow(0, 32767, 1).to(at::kFloat).transpose(0, 1);
  const at::Tensor last =
      at::matmul(at::softmax(at::matmul(q, k.transpose(1, 2)) / std::sqrt(128.0), -1), v).transpose(0, 1);
  EXPECT_LE(rms(planned[0].narrow(0, 32767, 1).to(at::kFloat) - last), 1e-2 * rms(last));
}

TEST_F(AttentionOnGpu, ManyRowsAreAttendedInParts) {
  size_t free_bytes = 0, total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  if (free_bytes < size_t{80} << 30) GTEST_SKIP() << "needs 80 GiB, " << (free_bytes >> 30) << " are free";
  // 11 sequences are one call, 13 two, 106 many, and more than 2^31 elements.
  for (const size_t count : {11, 13, 106}) {
    const Layout layout{std::vector<int64_t>(count, 4000)};
    const Operands in = random_operands(layout, {40, 8, 128}, 14);
    const Tensors found = outcome(in, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return attention(q, k, v, rows_of(layout));
    });
    for (const size_t which : {size_t{0}, count - 1}) {
      const auto cut = [&](const at::Tensor& x) { return x.narrow(0, layout.start(which), 4000).clone(); };
      const Layout alone{{4000}};
      const Tensors one = attended({cut(in.q), cut(in.k), cut(in.v), cut(in.dout)}, rows_of(alone));
      for (size_t i = 0; i < one.size(); ++i)
        EXPECT_LE(rms(cut(found[i]).to(at::kFloat) - one[i].to(at::kFloat)), 1e-2 * rms(one[i]))
            << kNames[i] << " of sequence " << which << " of " << count;
    }
  }
}

TEST_F(AttentionOnGpu, ThreadsShareThePlans) {
  const Operands in = random_operands(kMixed, {14, 2, 64}, 15);
  const AttentionRows rows = rows_of(kMixed);
  const at::Tensor wanted = attention(in.q, in.k, in.v, rows);
  at::cuda::getCurrentCUDAStream().synchronize();
  std::vector<at::Tensor> found(4);
  std::vector<std::thread> threads;
  for (at::Tensor& out : found)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) out = attention(in.q, in.k, in.v, rows);
    });
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& out : found) expect_equal(out, wanted);
}

TEST_F(AttentionOnGpu, RefusesALayoutOfOtherRows) {
  const Operands in = random_operands(kMixed, {14, 2, 64}, 16);
  AttentionRows rows = rows_of(kMixed);
  rows.device = on_device({{5}});
  EXPECT_THROW(attention(in.q, in.k, in.v, rows), ShapeError);
}

}  // namespace
}  // namespace apus::ops
