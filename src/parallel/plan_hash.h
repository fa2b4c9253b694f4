#pragma once

#include <cstdint>

#include "apus/comm/communicator.h"
#include "apus/parallel/engine_options.h"
#include "apus/parallel/group_plan.h"

namespace apus::parallel {

/// Digest of everything that decides which collectives a step makes and in which order: units, parameters,
/// policy, buckets, dtypes.
uint64_t plan_hash(const ModelUnits& model, const ShardedModelOptions& options);

/// Throws ConfigError on every rank, naming those that differ from rank 0, if the ranks' digests are not
/// equal. Collectives: one all_gather of 8 bytes a rank.
void agree_on_plan(comm::Communicator& dp, uint64_t hash);

}  // namespace apus::parallel
