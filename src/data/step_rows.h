#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "apus/data/balance.h"
#include "apus/data/sampler.h"

namespace apus::data {

class Dataset;

/// A step of the run.
struct StepPlace {
  int64_t epoch = 0;
  int64_t step = 0;  ///< within the epoch
  friend auto operator<=>(const StepPlace&, const StepPlace&) = default;
};

/// The rows of one micro-batch.
struct MicroBatchRows {
  std::vector<int64_t> ordinals;  ///< what Dataset::collate takes: rows, or packs
  std::vector<int64_t> places;    ///< of their rows (several for a pack), see Batch::places
};

/// Which rows form a step, and how they are dealt to micro-batches and ranks. Its only state is what it
/// remembers of the newest epochs and steps.
/// Threads: may be shared.
class StepRows final {
 public:
  /// Without a cost model the rows are dealt in order, whatever the goal.
  StepRows(std::shared_ptr<const Dataset> dataset, Sampler sampler, StepPlan plan,
           std::optional<CostModel> balance, DealGoal goal = DealGoal::kLikeCosts);

  /// Rows of the whole step, over all ranks; with packs those in them.
  int64_t rows(StepPlace at);
  MicroBatchRows micro_batch(StepPlace at, int64_t micro_batch, int64_t rank);
  const StepPlan& plan() const { return plan_; }

 private:
  struct Epoch {
    std::vector<int64_t> order;
    std::vector<int64_t> first_places;  // [steps + 1] rows before each step
  };
  using Chunks = std::vector<std::vector<int64_t>>;

  std::shared_ptr<const Epoch> epoch(int64_t number);
  std::shared_ptr<const Chunks> chunks(StepPlace at, const Epoch& epoch);
  Epoch make_epoch(int64_t number) const;
  Chunks deal(StepPlace at, const Epoch& epoch) const;

  std::shared_ptr<const Dataset> dataset_;
  Sampler sampler_;
  StepPlan plan_;
  std::optional<CostModel> balance_;
  DealGoal goal_;
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Epoch>> epochs_;
  std::map<StepPlace, std::shared_ptr<const Chunks>> dealt_;
};

}  // namespace apus::data
