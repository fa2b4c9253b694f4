#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/clock.h"

namespace apus::train {

/// Where runs of a job lie, and what an existing one means.
struct APUS_API RunDirectoryOptions {
  std::filesystem::path output_dir;
  /// A run lies in OUT/vN-YYYYMMDD-HHMMSS, else in OUT itself.
  bool add_version = true;
  /// A finished run is done again; without add_version, a foreign folder is reused.
  bool overwrite = false;
  /// Auto, none, or the checkpoint to go on from.
  std::string resume = "auto";
  /// The checkpoint that `resume` names gives weights alone: the run starts at step 0.
  bool resume_only_model = false;
};

/// What to do: made on rank 0, the same on all ranks after a broadcast.
struct APUS_API RunDecision {
  std::filesystem::path run_dir;
  /// Resume from here.
  std::optional<std::filesystem::path> checkpoint;
  /// The run in run_dir has finished; nothing to do.
  bool was_complete = false;
  /// Step of `checkpoint`; 0 without one.
  int64_t step = 0;
  /// Why an unfinished run was not resumed, a line a key.
  std::vector<std::string> differences;
  /// Checkpoints that were passed over because they are damaged, with the reason.
  std::vector<std::string> damaged;
  /// What differs between this run and the one that the named checkpoint belongs to, a line a key.
  std::vector<std::string> named_differences;
  /// Every file of `checkpoint` was just compared with its hash.
  bool is_checked = false;
};

/// Key of args.json for the absolute path of the folder that `model` named.
inline constexpr const char* kModelFolderKey = "model_folder";

/// Keys of args.json that may differ between a run and its continuation.
APUS_API const std::vector<std::string>& uncompared_keys();

/// Finds the run that `args` continues, or names a new one.
///
/// The newest unfinished version with equal args is resumed from its newest whole and undamaged checkpoint
/// (from the start if it has none); a newest version that finished with equal args is complete, unless
/// `overwrite` asks for it again. Otherwise a new version follows, and the differences to the newest
/// unfinished one are listed. Keys of uncompared_keys() are not compared, nor is eval_steps where it follows
/// save_steps. A checkpoint named by `resume` starts a new version from it, or goes on with the unfinished
/// version that began so. Nothing is written. Throws ConfigError if only the world size differs (naming
/// both), if resume names a folder
///         that is no whole checkpoint, or if OUT without versions holds another job's files.
APUS_API RunDecision decide_run(const nlohmann::ordered_json& args, const RunDirectoryOptions& options,
                                Clock& clock);

/// Creates the run's folder and its args.json, and cuts it back to the checkpoint: later lines of
/// logging.jsonl, later checkpoints and what an interrupted save left are removed (all of them where the run
/// starts anew). Throws FileError with the remedy if output_dir cannot be written.
APUS_API void open_run(const RunDecision& decision, const nlohmann::ordered_json& args);

/// Appends one object to logging.jsonl.
APUS_API void append_log(const std::filesystem::path& run_dir, const nlohmann::ordered_json& record);

/// Marks the run as finished (run.json).
APUS_API void finish_run(const std::filesystem::path& run_dir, int64_t steps);

/// Tries to create a file where runs shall lie, before anything expensive is done, and removes it again.
/// Throws:      ConfigError naming --output_dir, the folder and the remedy.
APUS_API void require_writable(const std::filesystem::path& output_dir);

/// Step of the checkpoint whose evaluation in logging.jsonl has the best `metric` ("eval_loss"), among
/// `steps`; none if no step of them was evaluated. Losses are better when smaller, other figures when larger;
/// of equal ones the first is the best.
APUS_API std::optional<int64_t> best_step(const std::filesystem::path& run_dir,
                                          const std::vector<int64_t>& steps,
                                          const std::string& metric = "eval_loss");

/// Which checkpoints stay.
struct TidyOptions {
  /// As many, at least the newest and the best; none: all.
  std::optional<int64_t> save_total_limit = {};
  /// As best_step.
  std::string metric = "eval_loss";
  /// `last` points at the best one, not at the newest.
  bool last_is_best = false;
};

/// Points the links `last` and `best` at checkpoints, removes those beyond the limit, and returns where
/// `last` points; an empty path without checkpoints.
APUS_API std::filesystem::path tidy_checkpoints(const std::filesystem::path& run_dir,
                                                const TidyOptions& options = {});

}  // namespace apus::train
