#pragma once

#include <memory>
#include <optional>

#include "apus/base/clock.h"
#include "apus/base/log.h"
#include "apus/comm/device_mesh.h"
#include "apus/data/tokenizer_config.h"
#include "apus/parallel/sharded_model.h"
#include "apus/train/job_settings.h"
#include "apus/train/memory_plan_job.h"
#include "apus/train/precompute_reference.h"
#include "apus/train/reference.h"
#include "train/job_data.h"
#include "train/job_model.h"

namespace apus::train {

/// What a job's engine is built among.
struct JobEngineContext {
  RankLayout layout = {};
  /// What is read: how long rows are.
  const PreparedRows* rows = nullptr;
  /// Rank 0's receives the memory plan.
  Logger* logger = nullptr;
  at::Device device = at::kCPU;
};

/// How an engine will be run: what the memory plan says.
struct EnginePlan {
  parallel::Recompute recompute = parallel::Recompute::kBlock;
  /// On rank 0.
  std::optional<JobPlan> plan = {};
};

/// Plans on rank 0, for all ranks. Recompute that is left to the plan is the cheapest that fits what a rank
/// may use: its share of the host's memory, or its GPU's. Collectives: the broadcast of the choice.
EnginePlan plan_engine(const JobOptions& options, JobModel& model, comm::Communicator& world,
                       const JobEngineContext& context);

/// The engine of a job's model, and that of its second model.
///
/// On a GPU frozen parameters that every rank holds are placed there first. Collectives: those of
/// ShardedModel.
class JobEngine final {
 public:
  /// `model` outlives it; a second model moves into it.
  JobEngine(const JobOptions& options, JobModel& model, std::shared_ptr<comm::Communicator> world,
            const JobEngineContext& context, parallel::Recompute recompute);

  parallel::ShardedModel& model() { return *engine_; }
  /// The job's reference, whichever kind it is.
  Reference reference();
  /// Lets go of a second model, once its log-probabilities are computed.
  void release_reference() { second_.reset(); }

 private:
  Reference reference_;
  std::unique_ptr<comm::DeviceMesh> mesh_;
  std::unique_ptr<parallel::ShardedModel> engine_;
  std::unique_ptr<ReferenceModel> second_;
};

/// How the reference's log-probabilities are computed ahead, but for the dataset's name and the cache.
PrecomputeOptions precompute_options(const JobOptions& options, const JobModel& model,
                                     const data::TokenizerFolder& tokenizer, Clock& clock, Logger& logger);

}  // namespace apus::train
