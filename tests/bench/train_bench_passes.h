#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apus/data/dataset.h"
#include "apus/parallel/sharded_model.h"
#include "apus/train/trainer.h"
#include "tests/bench/train_bench_case.h"

namespace apus::bench {

/// SFT steps without their end: forward, backward and reductions of all micro-batches as Trainer makes them,
/// then the gradients are dropped. `on_step` hears of a step one later, as from Trainer, with the same loss
/// in each (nothing is learned) and no norm; the steps end when it says so.
void run_passes(const TrainCase& job, parallel::ShardedModel& engine,
                const std::vector<std::string>& adapters, const data::Dataset& rows,
                const train::TrainerOptions& options,
                const std::function<bool(const train::StepReport&)>& on_step);

}  // namespace apus::bench
