#include "parallel/arrival_ring.h"

#include <algorithm>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

at::Tensor ArrivalRing::place(int64_t bytes, const Wait& wait) {
  APUS_CHECK(bytes <= bytes_.numel(), Error, "a place of ", bytes, " bytes in a ring of ", bytes_.numel());
  const int64_t begin = next_ + bytes <= bytes_.numel() ? next_ : 0, end = begin + bytes;
  const auto is_in_the_way = [&](const Slot& slot) { return slot.begin < end && begin < slot.end; };
  while (std::ranges::any_of(slots_, is_in_the_way)) {  // the worker takes them in order
    wait(slots_.front().taker);
    slots_.pop_front();
  }
  slots_.push_back({begin, end, 0});
  next_ = (end + kAlignment - 1) / kAlignment * kAlignment;
  return bytes_.slice(0, begin, end);
}

}  // namespace apus::parallel
