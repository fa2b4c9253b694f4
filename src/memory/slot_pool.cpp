#include "apus/memory/slot_pool.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "apus/base/error.h"

namespace apus::memory {

SlotPool::SlotPool(const SlotPoolOptions& options, at::Device device) : options_(options), device_(device) {
  APUS_CHECK(options.bytes >= 0 && options.slots >= 1, ConfigError, "a pool of ", options.slots, " slots of ",
             options.bytes, " bytes makes no sense");
}

at::Tensor SlotPool::take() {
  APUS_ASSERT(has_free(), "all ", options_.slots, " slots of ", options_.bytes,
              " bytes are taken; more units are held at a time than the engine expects");
  ++taken_;
  if (free_.empty()) return at::empty({options_.bytes}, at::TensorOptions().dtype(at::kByte).device(device_));
  at::Tensor slot = std::move(free_.back());
  free_.pop_back();
  return slot;
}

void SlotPool::give_back(at::Tensor slot_B) {
  constexpr int kNanByte = 0xff;  // reads as NaN in fp32 and bf16
  if (options_.poison) slot_B.fill_(kNanByte);
  --taken_;
  if (options_.keep) free_.push_back(std::move(slot_B));
}

}  // namespace apus::memory
