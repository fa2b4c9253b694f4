#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "apus/data/data_task.h"
#include "apus/data/packing.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer_config.h"
#include "apus/train/job_options.h"
#include "apus/train/job_settings.h"

namespace apus::train {

// A job's rows, from flags to datasets: the way that training goes, and a look at the data too.

/// What a model's folder says about the length of rows.
struct ModelLimits {
  /// --max_length, else the model's maximum, else the tokenizer's; none: nothing bounds the rows.
  std::optional<int64_t> max_length = {};
  /// Positions that the model was made for: --max_model_len, else its config's.
  std::optional<int64_t> positions = {};
  /// Of config.json; 0 without one.
  int64_t hidden_size = 0;
};

/// Reads config.json, if there is one. Warns where rows may be longer than what the model was made for.
ModelLimits read_model_limits(const JobOptions& options, const data::TokenizerFolder& tokenizer,
                              Logger& logger);

/// Throws:      ConfigError naming the flag where no folder is there.
void require_folder(const std::string& folder, const char* flag);

/// The tokenizer of --model with the template of --template; says what may surprise about it.
data::TokenizerFolder load_job_tokenizer(const JobOptions& options, Logger& logger);

/// What the rows of --dataset are taken for. DPO takes pairs; the other tasks look at the columns, as rows
/// may be token ids already. A pipe, which can be read once only, is taken for text. Throws:      ConfigError
/// where they are pairs and the task is another; as data::find_data_task.
data::DataTask job_data_task(const JobOptions& options);

/// Surroundings of reading rows; the pointers outlive it.
struct JobDataContext {
  data::DataTask task = data::DataTask::kDpo;
  const data::TokenizerFolder* tokenizer = nullptr;
  std::optional<int64_t> max_length = {};
  const Clock* clock = nullptr;
  Logger* logger = nullptr;
  std::optional<std::filesystem::path> cache_folder = {};
  /// As data::RowReadOptions::none_usable.
  std::optional<data::RowReport>* none_usable = nullptr;
};

/// Prepared rows: pairs, or else texts.
struct PreparedRows {
  std::shared_ptr<const data::DpoDataset> pairs = {};
  std::shared_ptr<const data::SftDataset> texts = {};
  data::RowReadOptions read = {};

  /// Either.
  std::shared_ptr<const data::Dataset> rows() const;
  /// The first row, decoded, with its labels.
  std::string first_row(const data::Tokenizer& tokenizer) const;
};

/// What reading a part asks, before it is read.
data::RowReadOptions read_options(const JobOptions& options, DatasetPart part, const JobDataContext& context);

/// Reads and tokenises one of the job's datasets. Throws as data::prepare_dpo.
PreparedRows prepare_rows(const JobOptions& options, DatasetPart part, const JobDataContext& context);

/// The rows cut by --split_dataset_ratio; without one, none are held out.
data::DatasetSplit split_rows(std::shared_ptr<const data::Dataset> rows, const JobOptions& options);

/// The rows in packs; null without --packing. `max_length` is the one in effect, if any.
std::shared_ptr<const data::PackedDataset> pack_rows(std::shared_ptr<const data::Dataset> rows,
                                                     const JobOptions& options,
                                                     std::optional<int64_t> max_length);

/// What a job trains on, and evaluates with.
struct JobRows {
  data::DataTask task = data::DataTask::kDpo;
  /// As read.
  PreparedRows all = {};
  /// What is trained (maybe packs), and what is held out (null: nothing).
  std::shared_ptr<const data::Dataset> train = {}, held_out = {};
  /// Rows that are trained, one by one.
  std::shared_ptr<const data::Dataset> unpacked = {};
  /// Rows of --val_dataset as read; empty without.
  PreparedRows validation = {};
  std::optional<data::PackingReport> packing = {};

  /// Over everything that decides about the rows.
  std::string fingerprint() const;
  /// For args.json: file, rows read and fingerprint of the text of each file of --dataset and --val_dataset.
  nlohmann::ordered_json files() const;
};

/// Everything of the above in order. Evaluation takes rows as they are, so that its figures do not depend on
/// packing.
JobRows prepare_job_rows(const JobOptions& options, const JobDataContext& context);

}  // namespace apus::train
