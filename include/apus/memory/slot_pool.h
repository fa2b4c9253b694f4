#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "apus/base/api.h"

namespace apus::memory {

/// Size and number of a pool's slots.
struct APUS_API SlotPoolOptions {
  int64_t bytes = 0;  ///< of each slot
  int slots = 2;      ///< at most; each is allocated when first taken
  /// Whether slots that come back are kept for the next taker or freed.
  bool keep = true;
  /// Fills slots that come back with bytes that read as NaN: for tests that nobody reads a released slot.
  bool poison = false;
};

/// A few equal buffers that gathered parameters live in, taken and given back.
/// Memory:      at most slots x bytes; with keep that stays from the first use on.
class APUS_API SlotPool final {
 public:
  explicit SlotPool(const SlotPoolOptions& options, at::Device device);

  const SlotPoolOptions& options() const { return options_; }
  /// Whether take() would succeed.
  bool has_free() const { return taken_ < options_.slots; }
  /// uint8 [bytes]. Throws an Error if all are taken.
  at::Tensor take();
  /// Takes a slot back.
  void give_back(at::Tensor slot_B);

 private:
  SlotPoolOptions options_;
  at::Device device_;
  std::vector<at::Tensor> free_;
  int taken_ = 0;
};

}  // namespace apus::memory
