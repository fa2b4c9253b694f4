#pragma once

#include "apus/base/api.h"

namespace apus::memory {

/// Where a tensor that belongs to a group lies between its uses.
enum class Residency {
  kDevice,  ///< where the engine computes
  kHost,    ///< in host memory: pinned where the engine computes on a GPU, a buffer of its own on the CPU
};

/// Where the states of training lie: what offload moves away from the device.
struct APUS_API StateResidency {
  /// Masters and moments. kHost: AdamW runs on the CPU.
  Residency optimizer = Residency::kDevice;
  /// The accumulator of gradients. kHost needs gradients that are sharded and an optimizer on the host.
  Residency gradients = Residency::kDevice;
  /// The own ranges of sharded parameters, frozen ones too. kHost needs parameters that are sharded.
  Residency parameters = Residency::kDevice;

  bool operator==(const StateResidency&) const = default;
};

}  // namespace apus::memory
