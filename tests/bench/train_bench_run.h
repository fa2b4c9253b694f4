#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tests/bench/bench_ranks.h"
#include "tests/bench/train_bench_case.h"

namespace apus::bench {

/// Trains the case and says what it measured: one JSON object, see docs/benchmarks/README.md. `ranks`: of a
/// case of real ranks, on each of which this is called; null for others. An error here ends them all.
nlohmann::ordered_json run_case(const TrainCase& job, const JoinedRanks* ranks = nullptr);

}  // namespace apus::bench
