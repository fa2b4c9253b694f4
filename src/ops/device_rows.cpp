#include "apus/ops/device_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>

#include "apus/base/error.h"

namespace apus::ops {
namespace {

constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

/// Every class costs a little more a call (64 sequences: 8 to 16 us forward), every new one a plan.
int64_t slots_for(int64_t sequences) {
  int64_t slots = 16;
  while (slots < sequences) slots *= 4;
  return slots;
}

at::Tensor staging(int64_t size, at::Device device) {
  return at::empty({size}, at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda()));
}

}  // namespace

DeviceRows::DeviceRows(std::span<const int64_t> lengths, int64_t padded_length, at::Device device,
                       std::shared_ptr<AttentionPlans> plans)
    : sequences_(static_cast<int64_t>(lengths.size())),
      slots_(slots_for(sequences_)),
      padded_length_(padded_length),
      plans_(std::move(plans)) {
  // Starts [slots + 1], then lengths [slots], in one copy.
  const at::Tensor host = staging(2 * slots_ + 1, device);
  int64_t* const starts = host.mutable_data_ptr<int64_t>();
  int64_t* const sizes = starts + slots_ + 1;
  for (int64_t i = 0; i < sequences_; ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    APUS_CHECK(length >= 0 && (padded_length == 0 || length <= padded_length), ShapeError, "sequence ", i,
               " has ", length, " tokens; each takes ", padded_length, " rows (0 = as many as it has)");
    starts[i] = rows_;
    sizes[i] = length;
    rows_ += padded_length > 0 ? padded_length : length;
    max_length_ = std::max(max_length_, length);
    has_padding_ = has_padding_ || (padded_length > 0 && length < padded_length);
    APUS_CHECK(rows_ <= kMaxRows, ShapeError, "attention over ", rows_, " rows; the limit is ", kMaxRows);
  }
  std::fill(starts + sequences_, starts + slots_ + 1, rows_);
  std::fill(sizes + sequences_, sizes + slots_, 0);
  const at::Tensor copied = host.to(device, /*non_blocking=*/true);
  starts_ = copied.narrow(0, 0, slots_ + 1);
  lengths_ = copied.narrow(0, slots_ + 1, slots_).to(at::kInt);
}

at::Tensor DeviceRows::offsets(int64_t row_width, at::ScalarType dtype) const {
  const std::scoped_lock lock(mutex_);
  at::Tensor& found = offsets_[{row_width, dtype}];
  if (!found.defined()) found = starts_.mul(row_width).to(dtype);
  return found;
}

at::Tensor DeviceRows::cu_seqlens() const {
  return this->offsets(1, at::kInt).narrow(0, 0, sequences_ + 1);
}

}  // namespace apus::ops
