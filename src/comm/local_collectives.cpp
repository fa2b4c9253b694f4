#include "comm/local_collectives.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <numeric>

#include "apus/base/error.h"

namespace apus::comm {
namespace {

class FinishedWork final : public Work {
 public:
  void wait() override {}
  bool is_completed() override { return true; }
};

void accumulate(at::Tensor& sum, const at::Tensor& row, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      sum.add_(row);
      return;
    case ReduceOp::kMax:
      at::maximum_out(sum, sum, row);
      return;
    case ReduceOp::kMin:
      at::minimum_out(sum, sum, row);
      return;
  }
  APUS_ASSERT(false, "unknown ReduceOp ", static_cast<int>(op));
}

}  // namespace

std::shared_ptr<Work> finished_work() {
  return std::make_shared<FinishedWork>();
}

void scale_in_place(const at::Tensor& tensor, double scale) {
  if (scale == 1.0) return;
  const at::AutoDispatchBelowADInplaceOrView raw;
  tensor.mul_(scale);
}

void copy_flat(const at::Tensor& out, const at::Tensor& in) {
  if (out.const_data_ptr() == in.const_data_ptr()) return;
  const at::AutoDispatchBelowADInplaceOrView raw;
  out.view({-1}).copy_(in.view({-1}));
}

void zero_flat(const at::Tensor& out) {
  const at::AutoDispatchBelowADInplaceOrView raw;
  out.zero_();
}

at::Tensor flat_part(const at::Tensor& tensor, int index, int count) {
  const at::AutoDispatchBelowADInplaceOrView raw;
  const int64_t part = tensor.numel() / count;
  return tensor.view({-1}).narrow(0, index * part, part);
}

at::Tensor byte_view(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView raw;
  return tensor.view({-1}).view(at::kByte);
}

void reduce_rows(const at::Tensor& out, const at::Tensor& parts, const ReduceOptions& options) {
  const at::AutoDispatchBelowADInplaceOrView raw;
  const at::ScalarType dtype = parts.scalar_type();
  const at::Tensor flat = out.view({-1});
  const bool narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
  at::Tensor sum = narrow ? parts.select(0, 0).to(at::kFloat) : flat;
  if (!narrow) sum.copy_(parts.select(0, 0));
  for (int64_t r = 1; r < parts.size(0); ++r) {
    accumulate(sum, narrow ? parts.select(0, r).to(at::kFloat) : parts.select(0, r), options.op);
  }
  if (options.scale != 1.0) sum.mul_(options.scale);
  if (narrow) flat.copy_(sum);
}

void move_own_part(const at::Tensor& out, const at::Tensor& in, const std::vector<int64_t>& out_splits,
                   const std::vector<int64_t>& in_splits, int rank) {
  const at::AutoDispatchBelowADInplaceOrView raw;
  const int64_t to = std::accumulate(out_splits.begin(), out_splits.begin() + rank, int64_t{0});
  const int64_t from = std::accumulate(in_splits.begin(), in_splits.begin() + rank, int64_t{0});
  const int64_t rows = in_splits[rank];
  if (rows > 0) out.narrow(0, to, rows).copy_(in.narrow(0, from, rows));
}

}  // namespace apus::comm
