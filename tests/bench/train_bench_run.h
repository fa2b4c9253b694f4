#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tests/bench/train_bench_case.h"

namespace apus::bench {

/// Trains the case and says what it measured: one JSON object, see docs/benchmarks/README.md.
nlohmann::ordered_json run_case(const TrainCase& job);

}  // namespace apus::bench
