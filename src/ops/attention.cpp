#include "apus/ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "apus/base/error.h"
#include "ops/attention_cuda.h"
#include "ops/attention_shape.h"

namespace apus::ops {
namespace {

void check_operands(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH) {
  APUS_CHECK(q_TNH.dim() == 3 && k_TKH.dim() == 3 && k_TKH.sizes() == v_TKH.sizes(), ShapeError,
             "attention: q must be [T, N, H] and k, v equal [T, K, H]; q is ", q_TNH.sizes(), ", k is ",
             k_TKH.sizes(), ", v is ", v_TKH.sizes());
  APUS_CHECK(q_TNH.size(0) == k_TKH.size(0) && q_TNH.size(2) == k_TKH.size(2), ShapeError,
             "attention: q and k must have the same rows and head dim; q is ", q_TNH.sizes(), ", k is ",
             k_TKH.sizes());
  APUS_CHECK(k_TKH.size(1) > 0 && q_TNH.size(1) % k_TKH.size(1) == 0, ShapeError,
             "attention: ", q_TNH.size(1), " query heads are not a multiple of ", k_TKH.size(1),
             " key/value heads");
}

void check_rows(const AttentionRows& rows, int64_t have) {
  int64_t want = static_cast<int64_t>(rows.lengths.size()) * rows.padded_length;
  if (rows.padded_length == 0) want = std::accumulate(rows.lengths.begin(), rows.lengths.end(), int64_t{0});
  APUS_CHECK(want == have, ShapeError, "attention: the layout has ", want, " rows (", rows.lengths.size(),
             rows.padded_length == 0 ? " sequences, packed" : " sequences, padded", "), q has ", have);
}

// [B, S, K, H] -> [B, N, S, H]: each key/value head stands before the query heads that read it.
at::Tensor spread_heads(const at::Tensor& x_BSKH, int64_t heads) {
  const at::Tensor x_BKSH = x_BSKH.transpose(1, 2);
  const int64_t kv_heads = x_BKSH.size(1);
  if (heads == kv_heads) return x_BKSH;
  const int64_t batch = x_BKSH.size(0), rows = x_BKSH.size(2), dim = x_BKSH.size(3);
  return x_BKSH.unsqueeze(2)
      .expand({batch, kv_heads, heads / kv_heads, rows, dim})
      .reshape({batch, heads, rows, dim});
}

// Equal lengths, batched.
at::Tensor causal(const at::Tensor& q_BSNH, const at::Tensor& k_BSKH, const at::Tensor& v_BSKH) {
  const int64_t heads = q_BSNH.size(2);
  return at::scaled_dot_product_attention(q_BSNH.transpose(1, 2), spread_heads(k_BSKH, heads),
                                          spread_heads(v_BSKH, heads), /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                          /*is_causal=*/true)
      .transpose(1, 2);
}

at::Tensor padded_attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                            int64_t batch, int64_t length) {
  const auto split = [&](const at::Tensor& x) { return x.unflatten(0, {batch, length}); };
  return causal(split(q_TNH), split(k_TKH), split(v_TKH)).reshape(q_TNH.sizes());
}

at::Tensor packed_attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                            std::span<const int64_t> lengths) {
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const int64_t length : lengths) {
    if (length == 0) continue;
    const auto cut = [&](const at::Tensor& x) { return x.narrow(0, first, length).unsqueeze(0); };
    parts.push_back(causal(cut(q_TNH), cut(k_TKH), cut(v_TKH)).squeeze(0));
    first += length;
  }
  return parts.size() == 1 ? parts.front().contiguous() : at::cat(parts, 0);
}

/// How many of the leading sequences a fused kernel gets at once: at least one.
size_t leading_sequences(const AttentionRows& rows, int64_t most_rows) {
  int64_t taken = 0;
  size_t count = 0;
  for (const int64_t length : rows.lengths) {
    taken += rows.padded_length > 0 ? rows.padded_length : length;
    if (count > 0 && taken > most_rows) break;
    ++count;
  }
  return count;
}

/// Attention on a GPU over more rows than its kernels are right for: some sequences after others.
at::Tensor attention_in_parts(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                              AttentionRows rows, int64_t most_rows) {
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  while (!rows.lengths.empty()) {
    const size_t count = leading_sequences(rows, most_rows);
    AttentionRows part = rows;
    part.lengths = rows.lengths.first(count);
    if (rows.device) part.device = rows.device->of(part.lengths);
    rows.lengths = rows.lengths.subspan(count);
    int64_t size = static_cast<int64_t>(count) * rows.padded_length;
    if (rows.padded_length == 0) size = std::accumulate(part.lengths.begin(), part.lengths.end(), int64_t{0});
    const auto cut = [&](const at::Tensor& x) { return x.narrow(0, first, size); };
    parts.push_back(cuda::attention(cut(q_TNH), cut(k_TKH), cut(v_TKH), part, {}));
    first += size;
  }
  return at::cat(parts, 0);
}

}  // namespace

namespace twin {

at::Tensor attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                     const AttentionRows& rows) {
  // No row: nothing to compute, but the gradients of q, k and v must exist (as zeros).
  if (q_TNH.size(0) == 0) return q_TNH + (k_TKH.sum() + v_TKH.sum());
  if (rows.padded_length == 0) return packed_attention(q_TNH, k_TKH, v_TKH, rows.lengths);
  return padded_attention(q_TNH, k_TKH, v_TKH, static_cast<int64_t>(rows.lengths.size()), rows.padded_length);
}

}  // namespace twin

std::shared_ptr<AttentionPlans> make_attention_plans() {
  return cuda::make_attention_plans();
}

at::Tensor attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                     const AttentionRows& rows, RowRoom out_room) {
  check_operands(q_TNH, k_TKH, v_TKH);
  check_rows(rows, q_TNH.size(0));
  if (!q_TNH.is_cuda()) return twin::attention(q_TNH, k_TKH, v_TKH, rows);
  // A plan is built for its class of rows, which is up to an eighth more than there are.
  const int64_t most_rows = cuda::kMostElements / std::max<int64_t>(1, q_TNH.size(1) * q_TNH.size(2)) * 7 / 8;
  if (q_TNH.size(0) > most_rows && rows.lengths.size() > 1)
    return attention_in_parts(q_TNH, k_TKH, v_TKH, rows, most_rows);
  return cuda::attention(q_TNH, k_TKH, v_TKH, rows, out_room);
}

}  // namespace apus::ops
