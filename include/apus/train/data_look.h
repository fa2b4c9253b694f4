#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/data_task.h"
#include "apus/data/packing.h"
#include "apus/data/rows_report.h"
#include "apus/data/survey.h"
#include "apus/train/job.h"

namespace apus {
class Clock;
class Logger;
}  // namespace apus

namespace apus::train {

/// One of a job's datasets, looked at.
struct APUS_API DatasetLook {
  /// "--dataset" or "--val_dataset".
  std::string flag;
  /// What became of the rows of each file, and of all.
  std::vector<data::FileCounts> files = {};
  data::RowReport report = {};
  data::LengthSummary lengths = {};
  /// The first rows, decoded.
  std::vector<data::RowSample> samples = {};
  /// Which rules made tokens of the rows.
  std::string note = {};
};

/// What packing makes of the rows that are trained.
struct PackingLook {
  int64_t packing_length = 0;
  data::PackingReport report = {};
};

/// What a training command would read, before a model is loaded.
struct APUS_API DataLook {
  data::DataTask task = data::DataTask::kDpo;
  /// As resolved; none: nothing bounds the rows.
  std::optional<int64_t> max_length = {};
  /// What --dataset holds; the lengths are those of the rows that are trained.
  DatasetLook train = {.flag = "--dataset"};
  /// Lengths of the rows that are trained, before they go into packs.
  std::vector<data::RowLengths> row_lengths = {};
  /// What --val_dataset holds.
  std::optional<DatasetLook> held_out = {};
  /// Rows of --dataset that --split_dataset_ratio takes for evaluation.
  int64_t split_rows = 0;
  std::optional<PackingLook> packing = {};
  /// The first epoch's batches.
  data::BatchSurvey batches = {};
  /// Ranks, and the rows (packs) of a micro-batch and its repetitions, that a step consists of.
  int64_t world = 1;
  int64_t micro_batch_rows = 1;
  int64_t accumulation = 1;
  /// Whether padding_free or packing leaves no padding in the batches.
  bool without_padding = false;
  /// Steps of the whole run.
  int64_t total_steps = 0;
  /// Why nothing can be trained: no row of a dataset is usable; empty otherwise. There are the counts of that
  /// dataset's rows, then, and of --dataset itself nothing else.
  std::string error = {};
};

/// Surroundings of a look.
struct APUS_API DataLookContext {
  /// What the rows are taken for.
  data::DataTask task = data::DataTask::kDpo;
  /// Ranks of the run.
  int world = 1;
  /// For templates that ask for the time.
  const Clock* clock = nullptr;
  /// Receives what preparing the rows says.
  Logger* logger = nullptr;
  /// As JobContext::cache_folder.
  std::optional<std::filesystem::path> cache_folder = {};
  /// Rows to decode of each dataset.
  int64_t samples = 3;
};

/// Reads and tokenises a job's datasets as the training command would, and says what they hold. Of the
/// model's folder it needs the tokenizer's files; max_length, if it is not given, is taken from config.json,
/// else from tokenizer_config.json. `options` are those of resolve_job. Throws:  as prepare_dpo,
/// prepare_sft, prepare_token_rows, but not where no row is usable, which the look says; ConfigError for
/// options that do not fit the rows.
APUS_API DataLook look_at_data(const JobOptions& options, const DataLookContext& context);

/// The whole look as one object.
APUS_API nlohmann::ordered_json to_json(const DataLook& look);

}  // namespace apus::train
