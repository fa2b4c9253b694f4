#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "apus/base/api.h"
#include "apus/memory/gathered_storage.h"
#include "apus/memory/residency.h"

namespace apus::memory {

/// Which part of a buffer a rank keeps.
struct APUS_API ShardPlace {
  int rank = 0;
  int world = 1;
};

/// Life of a sharded buffer on this rank.
enum class ShardState {
  kSharded,    ///< only the own range exists; touching a parameter throws
  kGathering,  ///< a collective is writing a slot
  kReady,      ///< the parameters can be read
};

/// A buffer of parameters cut into equal ranges, one a rank, whose whole form comes and goes.
///
/// The own range is permanent; the whole form lives in a slot that the caller lends between begin_gather and
/// release. Parameters are views of the whole form.
/// Optionally a second, larger range is kept between forward and backward: the rank's part among the few
/// ranks of its secondary group, so that backward gathers from neighbours alone. It is written anew by each
/// gather that asks for it, so it cannot outlive the parameters' values.
/// Memory:      bytes/world, on the device or (Residency::kHost) pinned on the host; on the device
///              + bytes/secondary world between keep_secondary and drop_secondary.
class APUS_API ShardedBuffer final {
 public:
  /// `bytes` is a multiple of world. `name` appears in errors.
  /// `device` is where the whole form is read, and the own range unless it lies on the host.
  ShardedBuffer(std::string name, int64_t bytes, ShardPlace place, at::Device device,
                Residency residency = Residency::kDevice);

  const std::string& name() const { return name_; }
  int64_t bytes() const { return storage_.bytes(); }
  ShardState state() const { return state_; }
  at::Device device() const { return device_; }
  /// Where the own range lies.
  Residency residency() const { return residency_; }
  const ShardPlace& place() const { return place_; }

  /// The own range, uint8 [bytes / world].
  const at::Tensor& shard() const { return shard_B_; }
  /// First byte of the own range in the whole.
  int64_t shard_offset() const { return place_.rank * shard_B_.numel(); }
  /// A parameter in the whole form; readable while the state is kReady.
  at::Tensor view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType dtype) const {
    return storage_.view(offset_bytes, sizes, dtype);
  }

  /// SHARDED -> GATHERING. `slot`: uint8 [bytes], written by the caller's collective.
  void begin_gather(const at::Tensor& slot);
  /// GATHERING -> READY: the parameters are in the slot.
  void finish_gather();
  /// READY or GATHERING -> SHARDED. The slot is the caller's again.
  void release();

  /// Copies this rank's part of the gathered form among `place.world` ranks. State kReady.
  void keep_secondary(ShardPlace place);
  /// Undefined if none is kept.
  const at::Tensor& secondary() const { return secondary_B_; }
  void drop_secondary() { secondary_B_.reset(); }

 private:
  std::string name_;
  ShardPlace place_;
  at::Device device_;
  Residency residency_;
  GatheredStorage storage_;
  at::Tensor shard_B_, slot_B_, secondary_B_;
  ShardState state_ = ShardState::kSharded;
};

}  // namespace apus::memory
