#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "apus/parallel/sharded_model.h"
#include "tests/bench/bench_ranks.h"
#include "tests/bench/memory_growth.h"
#include "tests/bench/train_bench_device.h"

namespace apus::bench {

/// Looks at this rank's memory at steps that are `every` apart; 0 = never.
class MemoryWatch {
 public:
  MemoryWatch(const BenchDevice& device, int64_t every) : device_(device), every_(every) {}
  void on_step(int64_t step);
  const std::vector<MemorySample>& samples() const { return samples_; }

 private:
  const BenchDevice& device_;
  int64_t every_;
  std::vector<MemorySample> samples_;
};

/// {steps, allocated_mib, reserved_mib, host_mib} of this rank, and growth_mib of every rank.
nlohmann::ordered_json memory_json(const std::vector<MemorySample>& samples, const JoinedRanks* ranks);

/// Gathers all weights on every rank: how many, their hash, and whether all ranks have the same bits.
nlohmann::ordered_json compare_weights(parallel::ShardedModel& engine, const JoinedRanks& ranks);

}  // namespace apus::bench
