#include "checkpoint/size_text.h"

#include "apus/base/error.h"

namespace apus::checkpoint {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

/// `bytes` in units of `unit`, in steps of one tenth or one hundredth.
int64_t steps_of(int64_t bytes, int64_t unit, int64_t steps) {
  return bytes / unit * steps + (bytes % unit * steps + unit - 1) / unit;
}

}  // namespace

std::string size_text(int64_t bytes) {
  if (bytes < kGiB) {
    const int64_t tenths = steps_of(bytes, kMiB, 10);
    return detail::concat(tenths / 10, ".", tenths % 10, " MiB");
  }
  const int64_t hundredths = steps_of(bytes, kGiB, 100);
  return detail::concat(hundredths / 100, hundredths % 100 < 10 ? ".0" : ".", hundredths % 100, " GiB");
}

}  // namespace apus::checkpoint
