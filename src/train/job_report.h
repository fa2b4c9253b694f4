#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apus/train/job_options.h"
#include "apus/train/run_report.h"
#include "apus/train/trainer.h"
#include "train/job_data.h"

namespace apus::train {

/// What a job knows at its end.
struct JobEnd {
  const JobOptions* options = nullptr;
  const JobRows* rows = nullptr;
  std::filesystem::path run_dir = {};
  /// What a user goes on with: the newest checkpoint, or the best.
  std::filesystem::path checkpoint = {};
  /// The merged model; empty: there is none.
  std::filesystem::path merged = {};
  RunSummary result = {};
  /// Where the run stood when it was saved last.
  TrainerState state = {};
  int ranks = 1;
};

/// What became of a dataset's rows, under a name.
ReportedRows reported_rows(const std::string& name, const data::RowReport& report);

/// What the closing table says: figures of the whole run out of logging.jsonl, rows, places and the next
/// command.
RunReport report_of(const JobEnd& end);

/// Of a run that was complete already: its log and where things lie.
RunReport report_of_complete(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint,
                             const JobOptions& options, int64_t steps);

}  // namespace apus::train
