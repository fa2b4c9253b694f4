#pragma once

#include <cstdint>
#include <vector>

#include "apus/train/memory_plan.h"

namespace apus::train {

/// A trainable group as the engine would make it.
struct GroupSize {
  int64_t elements = 0;     ///< G, padding included
  int64_t used = 0;         ///< without padding
  int64_t size = 4;         ///< bytes of the compute dtype
  int64_t source_size = 4;  ///< of the dtype that they come in
  size_t first_unit = 0;    ///< whose backward completes it
  size_t last_unit = 0;     ///< whose backward gives its first gradient
  bool sharded = false;     ///< parameters exist whole only while the unit runs

  int64_t bytes() const { return elements * size; }
};

/// Where a model's bytes lie on one rank.
struct PlacedModel {
  std::vector<GroupSize> groups;  ///< in the order in which they are reduced
  /// Frozen parameters that every rank holds, those of a frozen adapter apart.
  int64_t frozen_bytes = 0;
  int64_t frozen_adapter_bytes = 0;
  /// This rank's part of frozen parameters that are sharded.
  int64_t frozen_shard_bytes = 0;
  /// Whole bytes of what is sharded of each unit.
  std::vector<int64_t> unit_bytes;
  /// The head reads the embedding's weight.
  bool tied = false;
  /// On a card: frozen projections lie in homes with room for their adapters.
  bool has_homes = false;

  bool gathers() const;
  /// The largest of the blocks' unit_bytes.
  int64_t largest_block() const;
};

/// Groups, frozen bytes and gathered units under a policy on `ranks` ranks of dp_shard.
PlacedModel place_model(const PlanInput& input, int ranks);

/// The same of a frozen copy that serves as reference.
PlacedModel place_reference(const PlanInput& input, int ranks);

/// The device updates a share of the group's states though they lie on the host: parallel::HostUpdate.
bool shares_update(const GroupSize& group, const PlanInput& input);

}  // namespace apus::train
