#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>

#include "apus/base/error.h"
#include "apus/optim/adamw.h"
#include "optim/adamw_rows.h"

namespace apus::optim {
namespace {

void check_segments(const std::vector<Segment>& segments, int64_t count) {
  int64_t previous_end = 0;
  for (const Segment& segment : segments) {
    APUS_CHECK(segment.begin >= previous_end && segment.end >= segment.begin && segment.end <= count,
               ShapeError, "adamw_step: segment [", segment.begin, ", ", segment.end,
               ") must start at or after ", previous_end, " and end at or before ", count);
    previous_end = segment.end;
  }
}

/// The segments and behind them their begins, which searches look at, as bytes.
at::Tensor rows_of(const std::vector<Segment>& segments) {
  constexpr size_t kBytes = sizeof(detail::AdamwRow) + sizeof(int64_t);
  const at::Tensor bytes = at::empty({static_cast<int64_t>(segments.size() * kBytes)}, at::kByte);
  auto* next = bytes.mutable_data_ptr<uint8_t>();
  for (const Segment& segment : segments) {
    const detail::AdamwRow row{segment.begin,        segment.end,          segment.lr_scale,
                               segment.weight_decay, segment.rounding_key, segment.first_element};
    std::memcpy(next, &row, sizeof(row));
    next += sizeof(row);
  }
  for (const Segment& segment : segments) {
    std::memcpy(next, &segment.begin, sizeof(segment.begin));
    next += sizeof(segment.begin);
  }
  return bytes;
}

}  // namespace

AdamwSegments::AdamwSegments(std::vector<Segment> segments, int64_t elements, at::Device device)
    : segments_(std::move(segments)), elements_(elements) {
  check_segments(segments_, elements);
  if (device.is_cpu()) return;
  table_ = rows_of(segments_).to(device);
  coefficients_ = at::empty({static_cast<int64_t>(segments_.size()) + 1, 2},
                            at::TensorOptions().dtype(at::kFloat).device(device));
}

}  // namespace apus::optim
