#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "apus/comm/communicator.h"
#include "apus/comm/work.h"

namespace apus::comm {

/// A Work that has ended well.
std::shared_ptr<Work> finished_work();

/// Multiplies in place where the scale is not 1. Leaves autograd and version counters alone, as all of these
/// do.
void scale_in_place(const at::Tensor& tensor, double scale);

/// out <- in, flat; nothing if they are the same memory.
void copy_flat(const at::Tensor& out, const at::Tensor& in);

/// out <- 0.
void zero_flat(const at::Tensor& out);

/// Part `index` of `count` equal parts of a contiguous tensor, flat.
at::Tensor flat_part(const at::Tensor& tensor, int index, int count);

/// A contiguous tensor as flat bytes.
at::Tensor byte_view(const at::Tensor& tensor);

/// out [n] <- scale * reduce over dim 0 of parts [ranks, n], row 0 first; bfloat16 and half accumulate in
/// fp32 and are rounded once.
void reduce_rows(const at::Tensor& out, const at::Tensor& parts, const ReduceOptions& options);

/// all_to_all_v among fake peers: this rank's own part moves, the rest of `out` stays.
void move_own_part(const at::Tensor& out, const at::Tensor& in, const std::vector<int64_t>& out_splits,
                   const std::vector<int64_t>& in_splits, int rank);

}  // namespace apus::comm
