#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/clock.h"
#include "apus/base/log.h"
#include "apus/comm/communicator.h"
#include "apus/comm/launch_environment.h"

namespace apus::train {

/// Everything that decides a DPO job with LoRA, named as the command line's flags (compat.md section 2).
///
/// Values that are absent are resolved by resolve_job(); the resolved set is written to args.json.
struct APUS_API JobOptions {
  // What is trained.
  /// Folder in Hugging Face layout.
  std::string model;
  /// "float32" or "bfloat16"; absent = bf16's word, else the model's.
  std::optional<std::string> torch_dtype;
  /// True: bfloat16; false: float32.
  std::optional<bool> bf16;
  /// Folder of an adapter to go on training; empty = a new one.
  std::string adapters;
  /// Absent = a frozen copy of `adapters`; "none" = the base.
  std::optional<std::string> ref_adapters;
  /// Rank of a new adapter, and its alpha: the update is scaled by alpha / rank.
  int64_t lora_rank = 8;
  double lora_alpha = 32;
  /// Recorded in the adapter's configuration; off in DPO (disable_dropout).
  double lora_dropout = 0.05;
  /// Projections that get an adapter, by the end of their path; or a regular expression on the whole path.
  std::vector<std::string> target_modules = {"all-linear"};
  std::string target_regex;
  /// Scale by alpha / sqrt(rank).
  bool use_rslora = false;
  /// Of the saved adapter.
  std::string lora_dtype = "float32";
  // Data.
  /// Data files, each "FILE" or "FILE#N", of the pairs to train on and of the held-out ones.
  std::vector<std::string> dataset;
  std::vector<std::string> val_dataset;
  /// Share of `dataset` to hold out instead of a val_dataset.
  double split_dataset_ratio = 0.0;
  /// JSON object that renames columns: {"question": "prompt"}; empty = none.
  std::string columns;
  /// Absent = the model's maximum.
  std::optional<int64_t> max_length;
  /// Delete, left, right.
  std::string truncation_strategy = "delete";
  /// Plain strings go through the tokenizer's chat template, if it has one.
  bool use_chat_template = true;
  std::optional<std::string> system;
  /// Stop at the first bad row instead of counting it.
  bool strict = false;
  /// The command line's default is true on a GPU.
  bool padding_free = false;
  /// Fill each row of a micro-batch with several examples, up to packing_length tokens.
  bool packing = false;
  /// Absent = max_length.
  std::optional<int64_t> packing_length;
  /// Background threads that make batches, and how many each makes ahead: speed only.
  int64_t dataloader_num_workers = 1;
  int64_t dataloader_prefetch_factor = 2;
  bool dataloader_drop_last = false;
  bool train_dataloader_shuffle = true;
  // Length and cadence.
  /// Epochs, unless max_steps is positive.
  double num_train_epochs = 3;
  int64_t max_steps = -1;
  int64_t per_device_train_batch_size = 1;
  int64_t per_device_eval_batch_size = 1;
  /// Absent = so that a step has at least 16 rows.
  std::optional<int64_t> gradient_accumulation_steps;
  int64_t logging_steps = 5;
  int64_t save_steps = 500;
  /// Absent = save_steps.
  std::optional<int64_t> eval_steps;
  std::optional<int64_t> save_total_limit;
  // Optimisation.
  /// Peak rate; the schedule says how it rises and falls.
  double learning_rate = 1e-4;
  std::string lr_scheduler_type = "cosine";
  /// JSON object.
  std::string lr_scheduler_kwargs;
  double warmup_ratio = 0.0;
  double warmup_steps = 0.0;
  double weight_decay = 0.1;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.95;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;
  /// DPO's beta: how far the policy may move from the reference.
  double beta = 0.1;
  /// Pairs, microbatch.
  std::string dpo_reduction = "pairs";
  /// Of the adapter's initialisation.
  int64_t seed = 42;
  /// Absent = 42.
  std::optional<int64_t> data_seed;
  // How it runs.
  /// Zero0, zero2; empty = plain data parallelism.
  std::string deepspeed;
  bool gradient_checkpointing = true;
  /// Seconds.
  int64_t ddp_timeout = 1800;
  // Output.
  /// Empty = output/<model's folder name>.
  std::string output_dir;
  bool add_version = true;
  bool overwrite = false;
  /// Auto, none, or a checkpoint folder.
  std::string resume_from_checkpoint = "auto";
};

/// Fills in what depends on other options and on the world, and checks every value that can be checked without
/// reading files. Throws ConfigError naming the flag, what came and what is allowed.
APUS_API JobOptions resolve_job(JobOptions options, int world);

/// All resolved options under their flags' names, in the order of the struct: args.json.
APUS_API nlohmann::ordered_json to_json(const JobOptions& options);

/// The strategy as DeepSpeed-like JSON: only keys that act.
APUS_API nlohmann::ordered_json strategy_json(const JobOptions& options, int world);

/// Surroundings of a job.
struct APUS_API JobContext {
  /// All ranks; rank 0 writes files and log lines.
  std::shared_ptr<comm::Communicator> world;
  /// For the line that each rank prints.
  comm::LaunchEnvironment launch;
  /// This rank's; lines of rank 0 alone are sent on rank 0 only.
  std::shared_ptr<Logger> logger;
  Clock* clock = nullptr;
  /// Where prepared rows are kept for the next run and for the other ranks of the host; none = nowhere.
  std::optional<std::filesystem::path> cache_folder = {};
  /// Set by the host: save and return after the running step.
  const std::atomic<bool>* stop = nullptr;
};

/// How a job ended.
struct APUS_API JobSummary {
  std::filesystem::path run_dir;
  std::filesystem::path last_checkpoint;
  int64_t steps = 0;
  /// An earlier run had finished already; nothing was done.
  bool was_complete = false;
  bool finished = false;
};

/// The main job: DPO with LoRA from JSON Lines to a PEFT adapter, under the strategy that `deepspeed` names.
///
/// Loads the model by mmap, puts the adapter on, reads and tokenises the data, then trains, logs, evaluates and
/// writes checkpoints below output_dir (see run_directory.h). The same options again resume from the newest whole
/// checkpoint, or say that the run is complete.
/// Collectives: every rank calls it with equal options; one rank's error ends all with its message before the
///              first collective, and aborts the world afterwards.
/// Throws: ConfigError, DataError, CheckpointError, NotSupported, CommError.
APUS_API JobSummary run_job(const JobOptions& options, const JobContext& context);

}  // namespace apus::train
