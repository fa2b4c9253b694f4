#pragma once

#include <bit>
#include <cstdint>

#include "apus/base/philox.h"  // APUS_HOST_DEVICE

namespace apus::ops::kernels {

/// Divides by one number again and again: a product's high half and a shift, where a GPU's division is some
/// twenty instructions.
class Divider {
 public:
  /// `divisor` in [1, 2^31).
  constexpr explicit Divider(uint32_t divisor) : divisor_(divisor) {
    if (divisor == 1) return;
    const int bits = std::bit_width(divisor - 1);
    factor_ = static_cast<uint32_t>(((uint64_t{1} << (31 + bits)) + divisor - 1) / divisor);
    shift_ = static_cast<uint32_t>(bits - 1);
  }
  APUS_HOST_DEVICE constexpr uint32_t divisor() const { return divisor_; }
  /// number / divisor, for numbers below 2^31.
  APUS_HOST_DEVICE constexpr uint32_t quotient(uint32_t number) const {
    if (divisor_ == 1) return number;
    return static_cast<uint32_t>(uint64_t{number} * factor_ >> 32) >> shift_;
  }

 private:
  uint32_t divisor_;
  uint32_t factor_ = 0;
  uint32_t shift_ = 0;
};

}  // namespace apus::ops::kernels
