#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "apus/base/clock.h"
#include "apus/comm/communicator.h"
#include "apus/train/run_directory.h"
#include "train/run_lock.h"

namespace apus::train {

/// The folder of a job's run, on one rank: which one it is, when it is made, and that nothing of it stays
/// where nothing came of the run. Collectives: decide and open, on all ranks.
class JobFolder final {
 public:
  /// `world` and `clock` outlive it.
  JobFolder(comm::Communicator& world, RunDirectoryOptions options, TidyOptions tidy, Clock& clock)
      : world_(world), options_(std::move(options)), tidy_(std::move(tidy)), clock_(clock) {}

  /// Rank 0 chooses the run that `args` (args.json) mean; all follow. A folder that is there is locked;
  /// nothing else is written. Throws: ConfigError as decide_run, or if another process writes into the run.
  const RunDecision& decide(const nlohmann::ordered_json& args);
  /// Makes the folder, or cuts it back to the checkpoint that the run goes on from.
  /// Throws: ConfigError if another process has begun the same run since decide; FileError.
  void open();
  /// The run has failed: takes away what this process has made of a new run's folder, if nothing was logged
  /// or saved, so that only args.json, the lock and an empty log lie there. Does nothing on other ranks.
  void discard() noexcept;

  const RunDecision& decision() const { return decision_; }
  const TidyOptions& tidy() const { return tidy_; }

 private:
  bool is_first() const { return world_.rank() == 0; }
  void take();
  void claim();
  void follow(const nlohmann::json& agreed);

  comm::Communicator& world_;
  RunDirectoryOptions options_;
  TidyOptions tidy_;
  Clock& clock_;
  nlohmann::ordered_json args_;
  RunDecision decision_;
  // Of rank 0:
  std::optional<RunLock> lock_;
  bool is_new_ = false;                      ///< there was no args.json
  std::vector<std::filesystem::path> made_;  ///< folders that were not there, the innermost first
};

}  // namespace apus::train
