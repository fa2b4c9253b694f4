#include "apus/ops/device_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>

#include "apus/base/error.h"

namespace apus::ops {
namespace {

constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();

/// Every class costs a little more a call (64 sequences: 8 to 16 us forward), every new one a plan.
int64_t slots_for(int64_t sequences) {
  int64_t slots = 16;
  while (slots < sequences) slots *= 4;
  return slots;
}

at::Tensor staging(int64_t size, at::Device device) {
  return at::empty({size}, at::TensorOptions().dtype(at::kInt).pinned_memory(device.is_cuda()));
}

}  // namespace

DeviceRows::DeviceRows(std::span<const int64_t> lengths, int64_t padded_length, at::Device device,
                       std::shared_ptr<AttentionPlans> plans)
    : sequences_(static_cast<int64_t>(lengths.size())),
      slots_(slots_for(sequences_)),
      padded_length_(padded_length),
      plans_(std::move(plans)) {
  // Lengths [slots], then starts [slots + 1], in one copy; both lie at multiples of 64 bytes.
  const at::Tensor host = staging(2 * slots_ + 1, device);
  int32_t* const sizes = host.mutable_data_ptr<int32_t>();
  int32_t* const starts = sizes + slots_;
  for (int64_t i = 0; i < sequences_; ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    APUS_CHECK(length >= 0 && (padded_length == 0 || length <= padded_length), ShapeError, "sequence ", i,
               " has ", length, " tokens; each takes ", padded_length, " rows (0 = as many as it has)");
    starts[i] = static_cast<int32_t>(rows_);
    sizes[i] = static_cast<int32_t>(length);
    rows_ += padded_length > 0 ? padded_length : length;
    max_length_ = std::max(max_length_, length);
    has_padding_ = has_padding_ || (padded_length > 0 && length < padded_length);
    APUS_CHECK(rows_ <= kMaxElements, ShapeError, "attention over ", rows_, " rows; the limit is ",
               kMaxElements);
  }
  std::fill(starts + sequences_, starts + slots_ + 1, static_cast<int32_t>(rows_));
  std::fill(sizes + sequences_, sizes + slots_, 0);
  const at::Tensor copied = host.to(device, /*non_blocking=*/true);
  lengths_ = copied.narrow(0, 0, slots_);
  starts_ = copied.narrow(0, slots_, slots_ + 1);
}

at::Tensor DeviceRows::offsets(int64_t row_width) const {
  APUS_CHECK(rows_ * row_width <= kMaxElements, ShapeError, "offsets into ", rows_, " rows of ", row_width,
             " elements pass ", kMaxElements);
  const std::scoped_lock lock(mutex_);
  at::Tensor& found = offsets_[row_width];
  if (!found.defined()) found = row_width == 1 ? starts_ : starts_.mul(row_width);
  return found;
}

at::Tensor DeviceRows::cu_seqlens() const {
  return starts_.narrow(0, 0, sequences_ + 1);
}

std::shared_ptr<const DeviceRows> DeviceRows::of(std::span<const int64_t> lengths) const {
  return std::make_shared<const DeviceRows>(lengths, padded_length_, lengths_.device(), plans_);
}

}  // namespace apus::ops
