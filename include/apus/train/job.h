#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apus/base/api.h"
#include "apus/base/clock.h"
#include "apus/base/log.h"
#include "apus/comm/communicator.h"
#include "apus/comm/launch_environment.h"
#include "apus/train/job_options.h"
#include "apus/train/run_report.h"

namespace apus::train {

/// A step that was made, for whoever shows how far the run is.
struct JobProgress {
  int64_t step = 0;
  int64_t max_steps = 0;
  double loss = 0.0;
  double learning_rate = 0.0;
  /// Trained in this step over all ranks, without padding.
  int64_t tokens = 0;
};

/// Surroundings of a job.
struct APUS_API JobContext {
  /// All ranks; rank 0 writes files and log lines.
  std::shared_ptr<comm::Communicator> world;
  /// For the line that each rank prints.
  comm::LaunchEnvironment launch;
  /// The GPU that this rank trains on, by its number among those that the process sees; none: the CPU.
  std::optional<int> gpu = {};
  /// This rank's; lines of rank 0 alone are sent on rank 0 only.
  std::shared_ptr<Logger> logger;
  Clock* clock = nullptr;
  /// Where prepared rows are kept for the next run and for the other ranks of the host; none = nowhere.
  std::optional<std::filesystem::path> cache_folder = {};
  /// Set by the host: save and return after the running step.
  const std::atomic<bool>* stop = nullptr;
  /// Called on rank 0 after every step; may be empty.
  std::function<void(const JobProgress&)> on_step = {};
  /// Bytes that can still be written to a folder; absent: what the file system says.
  std::function<int64_t(const std::filesystem::path&)> free_space = nullptr;
  /// The closing table goes to the logger; false: the host shows JobSummary::report itself.
  bool say_report = true;
};

/// How a job ended.
struct APUS_API JobSummary {
  std::filesystem::path run_dir;
  std::filesystem::path last_checkpoint;
  int64_t steps = 0;
  /// An earlier run had finished already; nothing was done.
  bool was_complete = false;
  bool finished = false;
  /// Rank 0, of a run that made steps or had finished them: what the closing table says.
  std::optional<RunReport> report = {};
};

/// The training job: SFT, pre-training or DPO, of an adapter or of the whole model, from files of rows to a
/// folder that PEFT or transformers read, under the strategy that `deepspeed` or `fsdp` names.
///
/// Loads the model by mmap, puts the adapter on (or chooses what is trained), reads and tokenises the data,
/// then trains, logs, evaluates and writes checkpoints below output_dir (see run_directory.h,
/// docs/design/jobs.md). The same options again resume from the newest whole checkpoint, or say that the run
/// is complete. A disk without room for one checkpoint is refused before the first step. A new run's folder
/// is made when all that needs no step is checked, and goes again where a run fails before anything is logged
/// or saved.
/// Collectives: every rank calls it with equal options; one rank's error ends all with its message before the
///              first collective, and aborts the world afterwards.
/// Throws: ConfigError, DataError, CheckpointError, NotSupported, CommError.
APUS_API JobSummary run_job(const JobOptions& options, const JobContext& context);

}  // namespace apus::train
