#include "apus/memory/sharded_buffer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "apus/base/error.h"
#include "apus/memory/host_buffer.h"

namespace apus::memory {
namespace {

std::string untouchable_text(const std::string& name) {
  return "the parameters of " + name +
         " are sharded over the data-parallel ranks and not gathered now; read them inside the unit that "
         "lists them, "
         "or through gather_masters() or gather_all()";
}

}  // namespace

ShardedBuffer::ShardedBuffer(std::string name, int64_t bytes, ShardPlace place, at::Device device,
                             Residency residency)
    : name_(std::move(name)),
      place_(place),
      device_(device),
      residency_(residency),
      storage_(bytes, device, untouchable_text(name_)) {
  APUS_CHECK(place.world >= 1 && place.rank >= 0 && place.rank < place.world && bytes % place.world == 0,
             ConfigError, name_, ": ", bytes, " bytes do not split evenly over ", place.world,
             " ranks, of which this is ", place.rank);
  const int64_t own = bytes / place.world;
  shard_B_ = residency == Residency::kHost
                 ? host_zeros(own, at::kByte, device)
                 : at::zeros({own}, at::TensorOptions().dtype(at::kByte).device(device));
}

void ShardedBuffer::begin_gather(const at::Tensor& slot) {
  APUS_ASSERT(state_ == ShardState::kSharded, name_, " is gathered already");
  APUS_ASSERT(slot.numel() == bytes(), name_, " needs a slot of ", bytes(), " bytes, got ", slot.numel());
  slot_B_ = slot;
  state_ = ShardState::kGathering;
}

void ShardedBuffer::finish_gather() {
  APUS_ASSERT(state_ == ShardState::kGathering, name_, " has no gather to finish");
  storage_.install(slot_B_);
  state_ = ShardState::kReady;
}

void ShardedBuffer::release() {
  APUS_ASSERT(state_ != ShardState::kSharded, name_, " is not gathered");
  storage_.remove();
  slot_B_.reset();
  state_ = ShardState::kSharded;
}

void ShardedBuffer::keep_secondary(ShardPlace place) {
  APUS_ASSERT(state_ == ShardState::kReady, name_, " must be gathered before a part of it is kept");
  const int64_t part = bytes() / place.world;
  if (!secondary_B_.defined()) secondary_B_ = at::empty({part}, slot_B_.options());
  secondary_B_.copy_(slot_B_.slice(0, place.rank * part, (place.rank + 1) * part));
}

}  // namespace apus::memory
