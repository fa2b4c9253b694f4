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
/// Values that are absent are resolved by resolve_dpo_job(); the resolved set is written to args.json.
struct APUS_API DpoJobOptions {
  // What is trained.
  std::string model;                           ///< folder in Hugging Face layout
  std::optional<std::string> torch_dtype;      ///< "float32" or "bfloat16"; absent = bf16's word, else the model's
  std::optional<bool> bf16;                    ///< true: bfloat16; false: float32
  std::string adapters;                        ///< folder of an adapter to go on training; empty = a new one
  std::optional<std::string> ref_adapters;     ///< absent = a frozen copy of `adapters`; "none" = the base
  int64_t lora_rank = 8;
  double lora_alpha = 32;
  double lora_dropout = 0.05;  ///< recorded in the adapter's configuration; off in DPO (disable_dropout)
  std::vector<std::string> target_modules = {"all-linear"};
  std::string target_regex;
  bool use_rslora = false;
  std::string lora_dtype = "float32";          ///< of the saved adapter
  // Data.
  std::vector<std::string> dataset;
  std::vector<std::string> val_dataset;
  double split_dataset_ratio = 0.0;
  std::optional<int64_t> max_length;           ///< absent = the model's maximum
  std::string truncation_strategy = "delete";  ///< delete, left, right
  bool use_chat_template = true;
  std::optional<std::string> system;
  bool strict = false;
  bool padding_free = false;                   ///< the command line's default is true on a GPU
  int64_t dataloader_num_workers = 1;
  int64_t dataloader_prefetch_factor = 2;
  bool dataloader_drop_last = false;
  bool train_dataloader_shuffle = true;
  // Length and cadence.
  double num_train_epochs = 3;
  int64_t max_steps = -1;
  int64_t per_device_train_batch_size = 1;
  int64_t per_device_eval_batch_size = 1;
  std::optional<int64_t> gradient_accumulation_steps;  ///< absent = so that a step has at least 16 rows
  int64_t logging_steps = 5;
  int64_t save_steps = 500;
  std::optional<int64_t> eval_steps;           ///< absent = save_steps
  std::optional<int64_t> save_total_limit;
  // Optimisation.
  double learning_rate = 1e-4;
  std::string lr_scheduler_type = "cosine";
  std::string lr_scheduler_kwargs;             ///< JSON object
  double warmup_ratio = 0.0;
  double warmup_steps = 0.0;
  double weight_decay = 0.1;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.95;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;
  double beta = 0.1;
  std::string dpo_reduction = "pairs";         ///< pairs, microbatch
  int64_t seed = 42;
  std::optional<int64_t> data_seed;            ///< absent = seed
  // How it runs.
  std::string deepspeed;                       ///< zero0, zero2; empty = plain data parallelism
  bool gradient_checkpointing = true;
  int64_t ddp_timeout = 1800;                  ///< seconds
  // Output.
  std::string output_dir;                      ///< empty = output/<model's folder name>
  bool add_version = true;
  bool overwrite = false;
  std::string resume_from_checkpoint = "auto"; ///< auto, none, or a checkpoint folder
};

/// Fills in what depends on other options and on the world, and checks every value that can be checked without
/// reading files. Throws ConfigError naming the flag, what came and what is allowed.
APUS_API DpoJobOptions resolve_dpo_job(DpoJobOptions options, int world);

/// All resolved options under their flags' names, in the order of the struct: args.json.
APUS_API nlohmann::ordered_json to_json(const DpoJobOptions& options);

/// The strategy as DeepSpeed-like JSON: only keys that act.
APUS_API nlohmann::ordered_json strategy_json(const DpoJobOptions& options, int world);

/// Surroundings of a job.
struct APUS_API JobContext {
  std::shared_ptr<comm::Communicator> world;  ///< all ranks; rank 0 writes files and log lines
  comm::LaunchEnvironment launch;             ///< for the line that each rank prints
  std::shared_ptr<Logger> logger;             ///< this rank's; lines of rank 0 alone are sent on rank 0 only
  Clock* clock = nullptr;
  const std::atomic<bool>* stop = nullptr;    ///< set by the host: save and return after the running step
};

/// How a job ended.
struct APUS_API JobSummary {
  std::filesystem::path run_dir;
  std::filesystem::path last_checkpoint;
  int64_t steps = 0;
  bool was_complete = false;  ///< an earlier run had finished already; nothing was done
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
APUS_API JobSummary run_dpo_job(const DpoJobOptions& options, const JobContext& context);

}  // namespace apus::train
