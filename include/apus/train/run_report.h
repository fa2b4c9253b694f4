#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/api.h"

namespace apus::train {

/// A value and the step that it belongs to.
struct APUS_API ReportedValue {
  double value = 0.0;
  int64_t step = 0;
};

/// What became of a dataset's rows.
struct APUS_API ReportedRows {
  /// "training", "evaluation".
  std::string name;
  /// Rows that were read.
  int64_t input = 0;
  /// Rows that are used as they are.
  int64_t whole = 0;
  /// Rows that are used after a cut.
  int64_t truncated = 0;
  /// Rows that --split_dataset_ratio took for evaluation.
  int64_t held_out = 0;
  /// Reason and count.
  std::vector<std::pair<std::string, int64_t>> dropped = {};
};

/// All that the closing table of a run says. Empty texts and absent values are left out of it.
struct APUS_API RunReport {
  /// Steps made, and planned.
  int64_t steps = 0;
  int64_t max_steps = 0;
  /// Of the steps made, those whose gradients overflowed fp16: they changed nothing.
  int64_t skipped = 0;
  double epochs = 0.0;
  /// False: the run was stopped and can be resumed.
  bool finished = true;
  std::optional<ReportedValue> first_loss = {};
  std::optional<ReportedValue> last_loss = {};
  /// Name of the metric for the best checkpoint, and its best value.
  std::string best_metric = "eval_loss";
  std::optional<ReportedValue> best = {};
  std::optional<ReportedValue> last_evaluation = {};
  /// Of training, over all attempts.
  double seconds = 0.0;
  /// Trained, padding not counted, over all attempts and ranks.
  int64_t tokens = 0;
  int ranks = 1;
  /// Peak of one rank.
  int64_t memory_bytes = 0;
  std::vector<ReportedRows> rows = {};
  /// Where things lie: "adapter" and its folder, "log" and its file, ...
  std::vector<std::pair<std::string, std::string>> places = {};
  /// One line that says what the last loss looks like (sparkline()).
  std::string loss_curve = {};
  /// What to do with the result, a command for people to copy where there is one: the last line.
  std::string next = {};
};

/// Whether the rows of a dataset add up: input = whole + truncated + held_out + dropped.
APUS_API bool rows_add_up(const ReportedRows& rows);

/// How the closing table is laid out.
struct APUS_API RunReportOptions {
  /// Columns of the terminal; longer values go on below themselves, paths and commands are never broken. 0:
  /// no bound (a pipe).
  int width = 0;
};

/// The closing table, plain ASCII but for what the report's texts hold; no colours; ends without a newline.
/// Throws:      Error if a dataset's rows do not add up.
APUS_API std::string closing_table(const RunReport& report, const RunReportOptions& options = {});

/// `apus merge --adapters CHECKPOINT`, quoted for a shell where the path asks for it.
APUS_API std::string merge_command(const std::string& checkpoint);

/// `load MODEL with transformers or vLLM, or train on with --model MODEL`, quoted likewise.
APUS_API std::string load_hint(const std::string& model);

}  // namespace apus::train
