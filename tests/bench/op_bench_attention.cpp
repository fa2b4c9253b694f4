// Attention of 7B heads over 4 x 4096 tokens and a skewed mix, against the bare cuDNN plan (buffers made
// ahead, no tape) and against FlashAttention-2, each forward and backward.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAStream.h>

#include <numeric>

#include "apus/ops/attention.h"
#include "ops/attention_shape.h"
#include "ops/cuda/attention_plans.h"
#include "ops/cuda/flash_attention.h"
#include "tests/bench/op_bench.h"

namespace apus::bench {
namespace {

using ops::DeviceRows;

struct Problem {
  std::string name;
  int64_t heads, kv_heads, head_dim;
  std::vector<int64_t> lengths;

  int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  /// Products of the causal half: 2 in forward, 5 in backward.
  double flops(int products) const {
    double pairs = 0;
    for (const int64_t length : lengths) pairs += 0.5 * double(length) * double(length);
    return 2.0 * products * pairs * double(heads * head_dim);
  }
  /// Bytes of q, k, v and the result, read or written once.
  int64_t bytes() const { return rows() * (heads + kv_heads) * 2 * head_dim * 2; }
};

/// All that a call reads and writes.
struct Tensors {
  at::Tensor q, k, v, out, stats, dout, dq, dk, dv;
};

Tensors make_tensors(const Problem& p) {
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  const auto random = [&](int64_t heads) { return at::randn({p.rows(), heads, p.head_dim}, options); };
  Tensors t;
  t.q = random(p.heads);
  t.k = random(p.kv_heads);
  t.v = random(p.kv_heads);
  t.out = at::empty_like(t.q);
  t.stats = at::empty({p.rows(), p.heads}, options.dtype(at::kFloat));
  t.dout = random(p.heads);
  t.dq = at::empty_like(t.q);
  t.dk = at::empty_like(t.k);
  t.dv = at::empty_like(t.v);
  return t;
}

ops::cuda::PlanBuffers buffers_of(const Tensors& t, const Problem& p, const DeviceRows& rows) {
  const auto offsets = [&](int64_t width) { return rows.offsets(width).const_data_ptr(); };
  const int64_t q_width = p.heads * p.head_dim, kv_width = p.kv_heads * p.head_dim;
  return {.q = t.q.const_data_ptr(),
          .k = t.k.const_data_ptr(),
          .v = t.v.const_data_ptr(),
          .out = t.out.mutable_data_ptr(),
          .stats = t.stats.mutable_data_ptr(),
          .dout = t.dout.const_data_ptr(),
          .dq = t.dq.mutable_data_ptr(),
          .dk = t.dk.mutable_data_ptr(),
          .dv = t.dv.mutable_data_ptr(),
          .lengths = rows.lengths().const_data_ptr(),
          .q_offsets = offsets(q_width),
          .kv_offsets = offsets(kv_width),
          .out_offsets = offsets(q_width),
          .stats_offsets = offsets(p.heads)};
}

/// One problem on the GPU, and what runs it. Tensors of 16k tokens beat the L2 by themselves.
struct Bench {
  explicit Bench(const Problem& problem)
      : p(problem),
        plans(ops::make_attention_plans()),
        rows(std::make_shared<const DeviceRows>(p.lengths, 0, at::Device(at::kCUDA, 0), plans)),
        t(make_tensors(p)),
        buffers(buffers_of(t, p, *rows)) {
    const ops::cuda::AttentionSizes sizes{.heads = p.heads,
                                          .kv_heads = p.kv_heads,
                                          .head_dim = p.head_dim,
                                          .sequences = rows->sequences(),
                                          .slots = rows->slots(),
                                          .max_length = rows->max_length(),
                                          .rows = p.rows(),
                                          .out_stride = p.heads * p.head_dim};
    forward = ops::cuda::forward_plan(sizes);
    backward = ops::cuda::backward_plan(sizes);
    for (at::Tensor* x : {&t.q, &t.k, &t.v}) x->set_requires_grad(true);
    this->plan(forward);
    result = this->attend();
  }

  at::Tensor attend() const { return ops::attention(t.q, t.k, t.v, {.lengths = p.lengths, .device = rows}); }
  void plan(const ops::cuda::PlanShape& shape) const {
    plans->run(shape, buffers, c10::cuda::getCurrentCUDAStream());
  }
  /// The tape's backward alone: the graph is kept, gradients are dropped.
  void tape_backward() const {
    result.backward(t.dout, /*retain_graph=*/true);
    for (const at::Tensor& x : {t.q, t.k, t.v}) x.mutable_grad().reset();
  }

  Problem p;
  std::shared_ptr<ops::AttentionPlans> plans;
  std::shared_ptr<const DeviceRows> rows;
  Tensors t;
  ops::cuda::PlanBuffers buffers;
  ops::cuda::PlanShape forward, backward;
  at::Tensor result;
};

void add_plan_cases(Suite& suite, const Problem& p) {
  suite.add("attention/forward " + p.name, [p] {
    const auto bench = std::make_shared<Bench>(p);
    return OpCase{.name = p.name,
                  .bytes = p.bytes(),
                  .flops = p.flops(2),
                  .run = [bench] { bench->attend(); },
                  .reference = [bench] { bench->plan(bench->forward); },
                  .reference_name = "bare plan"};
  });
  suite.add("attention/backward " + p.name, [p] {
    const auto bench = std::make_shared<Bench>(p);
    return OpCase{.name = p.name,
                  .bytes = 2 * p.bytes(),
                  .flops = p.flops(5),
                  .run = [bench] { bench->tape_backward(); },
                  .reference = [bench] { bench->plan(bench->backward); },
                  .reference_name = "bare plan"};
  });
}

void add_flash_cases(Suite& suite, const Problem& p) {
  suite.add("attention_fa2/forward " + p.name, [p] {
    const auto bench = std::make_shared<Bench>(p);
    return OpCase{.name = p.name,
                  .bytes = p.bytes(),
                  .flops = p.flops(2),
                  .run =
                      [bench] {
                        ops::cuda::flash_attention(bench->t.q.detach(), bench->t.k.detach(),
                                                   bench->t.v.detach(), *bench->rows);
                      },
                  .reference = [bench] { bench->plan(bench->forward); },
                  .reference_name = "bare plan"};
  });
  suite.add("attention_fa2/backward " + p.name, [p] {
    const auto bench = std::make_shared<Bench>(p);
    const auto q = bench->t.q.detach(), k = bench->t.k.detach(), v = bench->t.v.detach();
    const auto result = ops::cuda::flash_attention(q, k, v, *bench->rows);
    return OpCase{
        .name = p.name,
        .bytes = 2 * p.bytes(),
        .flops = p.flops(5),
        .run = [=] { ops::cuda::flash_attention_backward(bench->t.dout, q, k, v, result, *bench->rows); },
        .reference = [bench] { bench->plan(bench->backward); },
        .reference_name = "bare plan"};
  });
}

}  // namespace

void add_attention_cases(Suite& suite) {
  const Problem even{"7b 4x4096", 28, 4, 128, {4096, 4096, 4096, 4096}};
  const Problem skewed{"7b mix to 8192", 28, 4, 128, {8192, 3000, 2000, 1500, 900, 500, 200, 92}};
  const Problem half{"0.5b 4x4096", 14, 2, 64, {4096, 4096, 4096, 4096}};
  for (const Problem& p : {even, skewed, half}) add_plan_cases(suite, p);
  add_flash_cases(suite, even);
}

}  // namespace apus::bench
